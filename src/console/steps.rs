//! Counts of the last 15 minutes in steps of ten seconds.

/// Seconds per step.
pub(super) const STEP_S: u64 = 10;
/// Steps kept.
pub(super) const STEPS: usize = 90;

/// A ring of counts. A second to which nothing was added counts 0.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    counts: Box<[u32; STEPS]>,
    /// The newest step, counted since the epoch.
    newest: u64,
    sum: u64,
}

impl Default for Steps {
    fn default() -> Self {
        Self { counts: Box::new([0; STEPS]), newest: 0, sum: 0 }
    }
}

impl Steps {
    /// Adds units to the second before `end`. Time does not go back: an earlier second counts towards the newest step.
    pub(super) fn add(&mut self, end: u64, units: u64) {
        self.advance(end);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let count = &mut self.counts[place(self.newest)];
        let before = *count;
        *count = before.saturating_add(units);
        self.sum += u64::from(*count - before);
    }

    /// Forgets steps older than 15 minutes at `end`.
    pub(super) fn advance(&mut self, end: u64) {
        let step = end.saturating_sub(1) / STEP_S;
        if step <= self.newest {
            return;
        }
        let passed = (step - self.newest).min(STEPS as u64);
        for step in step - passed + 1..=step {
            self.sum -= u64::from(std::mem::take(&mut self.counts[place(step)]));
        }
        self.newest = step;
    }

    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// Units per second over the newest two steps, 11 to 20 seconds. Call [`advance`](Self::advance) first.
    pub(super) fn rate(&self, end: u64) -> f64 {
        let seconds = STEP_S + end.saturating_sub(1) % STEP_S + 1;
        self.newest_steps(2) as f64 / seconds as f64
    }

    pub(super) fn newest_steps(&self, steps: u64) -> u64 {
        (0..steps).map(|back| u64::from(self.counts[place(self.newest.saturating_sub(back))])).sum()
    }

    /// The counts, oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        let oldest = (self.newest + 1) % STEPS as u64;
        (0..STEPS as u64).map(move |step| self.counts[place(oldest + step)])
    }
}

fn place(step: u64) -> usize {
    // Below STEPS.
    (step % STEPS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_for_ninety_steps() {
        let mut steps = Steps::default();
        steps.add(1_000, 5);
        steps.add(1_001, 7);
        assert_eq!((steps.sum(), steps.newest_steps(1), steps.newest_steps(2)), (12, 7, 12));
        steps.advance(1_890);
        assert_eq!(steps.sum(), 12, "the second before 1,000 is in the step of 990 to 1,000");
        steps.advance(1_891);
        assert_eq!((steps.sum(), steps.all().next()), (7, Some(7)));
        steps.add(1_901, 1);
        assert_eq!((steps.sum(), steps.all().last()), (1, Some(1)));
        steps.advance(1_000_000);
        assert_eq!((steps.sum(), steps.all().sum::<u32>()), (0, 0));
    }

    #[test]
    fn a_rate_is_that_of_eleven_to_twenty_seconds() {
        let mut steps = Steps::default();
        for end in 1_001..=1_030 {
            steps.add(end, 8);
            if end >= 1_020 {
                assert!((steps.rate(end) - 8.0).abs() < 1e-9, "{end}: {}", steps.rate(end));
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_loses_nothing() {
        let mut steps = Steps::default();
        steps.add(1_000, 5);
        steps.add(500, 5);
        assert_eq!((steps.sum(), steps.newest_steps(1)), (10, 10));
    }
}
