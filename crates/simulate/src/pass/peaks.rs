//! Peak demand of one key in epoch-aligned windows of several lengths, and in the limit's own windows.

/// The lengths of windows that every key has, in seconds.
pub(super) const WINDOWS_S: [u64; 6] = [1, 10, 60, 300, 3_600, 86_400];

/// The units in the current window of one length, and the most in any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeakCounter {
    /// Number of the window since the epoch.
    window: u64,
    units: u64,
    pub peak: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peaks {
    pub windows: [PeakCounter; WINDOWS_S.len()],
    /// The peak in windows of the limit's own period, or of its calendar.
    pub own: PeakCounter,
}

impl PeakCounter {
    /// Adds units in a window; returns the units in it so far.
    fn add(&mut self, window: u64, units: u64) -> u64 {
        if self.window != window {
            *self = Self { window, units: 0, peak: self.peak };
        }
        self.units = self.units.saturating_add(units);
        self.peak = self.peak.max(self.units);
        self.units
    }
}

impl Peaks {
    /// Adds units at a time; returns the units in the limit's own window so far. `own_window`: the number of that
    /// window.
    pub fn add(&mut self, t_us: u64, own_window: u64, units: u64) -> u64 {
        let second = t_us / 1_000_000;
        for (counter, length) in self.windows.iter_mut().zip(WINDOWS_S) {
            counter.add(second / length, units);
        }
        self.own.add(own_window, units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_fullest_window() {
        let mut peaks = Peaks::default();
        let at = |second: u64| second * 1_000_000;
        assert_eq!(peaks.add(at(120), 2, 3), 3);
        assert_eq!(peaks.add(at(179), 2, 4), 7);
        assert_eq!(peaks.add(at(180), 3, 5), 5, "a new minute");
        assert_eq!(peaks.own.peak, 7);
        let per_window = peaks.windows.map(|counter| counter.peak);
        assert_eq!(per_window, [5, 5, 7, 12, 12, 12]);
        assert_eq!(peaks.add(at(180), 3, 5_000_000_000), 5_000_000_005, "more than 32 bits");
        assert_eq!(peaks.own.peak, 5_000_000_005);
    }
}
