//! Boundaries between calendar windows, as numbers. The crate `rules` computes them from dates and time zones.

use std::fmt;

/// When the days, weeks, months or years of a time zone start.
#[derive(Clone, PartialEq, Eq)]
pub struct Calendar {
    zone: Box<str>,
    windows: Box<str>,
    /// At least two, strictly rising, microseconds since the epoch.
    boundaries: Box<[u64]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    #[error("a calendar needs at least two boundaries")]
    TooFew,
    #[error("boundary {0} is not after the boundary before it")]
    NotRising(usize),
}

impl Calendar {
    /// `zone`: such as `Europe/Berlin`; `windows`: such as `month/15`; `boundaries`: window starts in microseconds
    /// since the epoch.
    ///
    /// # Errors
    /// [`CalendarError`] unless there are at least two boundaries in strictly ascending order.
    pub fn new(zone: &str, windows: &str, boundaries: Vec<u64>) -> Result<Self, CalendarError> {
        if boundaries.len() < 2 {
            return Err(CalendarError::TooFew);
        }
        match boundaries.windows(2).position(|pair| pair[0] >= pair[1]) {
            Some(index) => Err(CalendarError::NotRising(index + 1)),
            None => Ok(Self { zone: zone.into(), windows: windows.into(), boundaries: boundaries.into() }),
        }
    }

    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Returns start and end of the window at `now_us`, microseconds since the epoch. Outside the boundaries, windows
    /// are as long as the nearest known one.
    pub fn window(&self, now_us: u64) -> (u64, u64) {
        let next = self.boundaries.partition_point(|&boundary| boundary <= now_us);
        let pair = |index: usize| (self.boundaries[index], self.boundaries[index + 1]);
        if next == 0 {
            let (start_us, end_us) = pair(0);
            let windows_before = (start_us - now_us).div_ceil(end_us - start_us);
            let back_us = |windows: u64| start_us.saturating_sub(windows * (end_us - start_us));
            return (back_us(windows_before), back_us(windows_before - 1));
        }
        if next < self.boundaries.len() {
            return pair(next - 1);
        }
        let (start_us, end_us) = pair(next - 2);
        let length_us = end_us - start_us;
        let start_us = now_us - (now_us - end_us) % length_us;
        (start_us, start_us + length_us)
    }

    /// Returns the three boundaries around `now_us`, with the nearest in the middle.
    pub fn around(&self, now_us: u64) -> [u64; 3] {
        let (start_us, end_us) = self.window(now_us);
        if now_us - start_us < end_us - now_us {
            [self.window(start_us.saturating_sub(1)).0, start_us, end_us]
        } else {
            [start_us, end_us, self.window(end_us).1]
        }
    }
}

/// Names the calendar in counter keys: `Europe/Berlin/month/15`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.zone, self.windows)
    }
}

/// Omits the boundaries, of which there are thousands.
impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({self}, {} boundaries)", self.boundaries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar() -> Calendar {
        Calendar::new("UTC", "day", vec![100, 130, 170, 180]).expect("rising boundaries")
    }

    #[test]
    fn every_time_has_a_window() {
        let table = [
            (0, (0, 10)),   // cut off at the epoch
            (9, (0, 10)),   //
            (10, (10, 40)), // windows as long as the first one
            (99, (70, 100)),
            (100, (100, 130)),
            (129, (100, 130)),
            (130, (130, 170)),
            (179, (170, 180)),
            (180, (180, 190)), // windows as long as the last one
            (195, (190, 200)),
        ];
        for (now_us, window) in table {
            assert_eq!(calendar().window(now_us), window, "at {now_us}");
        }
    }

    #[test]
    fn the_nearest_boundary_is_in_the_middle() {
        let table = [
            (114, [70, 100, 130]),
            (115, [100, 130, 170]),
            (149, [100, 130, 170]),
            (150, [130, 170, 180]),
            (174, [130, 170, 180]),
            (175, [170, 180, 190]),
            (184, [170, 180, 190]),
            (185, [180, 190, 200]),
        ];
        for (now_us, expected) in table {
            assert_eq!(calendar().around(now_us), expected, "at {now_us}");
        }
    }

    #[test]
    fn boundaries_must_rise() {
        let error = |boundaries| Calendar::new("UTC", "day", boundaries).expect_err("not a calendar");
        assert_eq!(error(vec![1]), CalendarError::TooFew);
        assert_eq!(error(vec![1, 2, 2]), CalendarError::NotRising(2));
    }

    #[test]
    fn the_name_has_the_zone_and_the_windows() {
        assert_eq!(calendar().to_string(), "UTC/day");
    }
}
