//! Counts of the last 15 minutes in steps of ten seconds.

/// Seconds per step.
pub(super) const STEP_S: u64 = 10;
/// Steps kept.
pub(super) const STEPS: usize = 90;

/// A ring of counts. A second to which nothing was added counts 0.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    counts: Box<[u32; STEPS]>,
    newest: u64,
    sum: u64,
}

impl Default for Steps {
    fn default() -> Self {
        Self { counts: Box::new([0; STEPS]), newest: 0, sum: 0 }
    }
}

impl Steps {
    /// Adds units to a second, which is counted since startup: the clock may step back.
    pub(super) fn add(&mut self, second: u64, units: u64) {
        self.advance(second);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let count = &mut self.counts[place(self.newest)];
        let before = *count;
        *count = before.saturating_add(units);
        self.sum += u64::from(*count - before);
    }

    /// Forgets steps older than 15 minutes.
    pub(super) fn advance(&mut self, second: u64) {
        let step = second.saturating_sub(1) / STEP_S;
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

    /// Orders by the current rate, for what a full table keeps: a newcomer with a high rate has a small sum.
    pub(super) fn rank(&self) -> (u64, u64) {
        (self.newest_steps(2), self.sum)
    }

    /// Units per second over the newest two steps, 11 to 20 seconds. Call [`advance`](Self::advance) first.
    pub(super) fn rate(&self, second: u64) -> f64 {
        let seconds = STEP_S + second.saturating_sub(1) % STEP_S + 1;
        self.newest_steps(2) as f64 / seconds as f64
    }

    pub(super) fn newest_steps(&self, steps: u64) -> u64 {
        (0..steps).map(|back| u64::from(self.counts[place(self.newest + STEPS as u64 - back)])).sum()
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
        steps.add(1, 11);
        assert!((steps.rate(1) - 1.0).abs() < 1e-9, "{}", steps.rate(1));
        for second in 1_001..=1_030 {
            steps.add(second, 8);
            if second >= 1_020 {
                assert!((steps.rate(second) - 8.0).abs() < 1e-9, "{second}: {}", steps.rate(second));
            }
        }
    }
}
