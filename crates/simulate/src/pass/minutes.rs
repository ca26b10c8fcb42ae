//! Counts per minute, or per longer step if a log is long.

/// Steps of a timeline in seconds, each a multiple of the previous one. The first with few enough points is used.
const STEPS_S: [u64; 5] = [60, 300, 900, 3_600, 86_400];
const MAX_POINTS: u64 = 1_500;

/// Counts per minute, or per longer step once there are more counts than a timeline has points: the log is then so long
/// that its timeline has at least that step. Times never step back, so a count belongs to the last step or to a new
/// one.
#[derive(Clone, Debug, Default)]
pub(super) struct MinuteCounts {
    /// The number of each step since the epoch, and its count.
    steps: Vec<(u64, u64)>,
    /// Index in [`STEPS_S`].
    step: usize,
}

impl MinuteCounts {
    pub fn count(&mut self, t_us: u64) {
        while self.steps.len() as u64 > MAX_POINTS && self.step + 1 < STEPS_S.len() {
            self.widen();
        }
        let step = t_us / 1_000_000 / STEPS_S[self.step];
        match self.steps.last_mut() {
            Some((last, count)) if *last == step => *count += 1,
            _ => self.steps.push((step, 1)),
        }
    }

    /// Adds up the counts of each longer step.
    fn widen(&mut self) {
        let factor = STEPS_S[self.step + 1] / STEPS_S[self.step];
        self.step += 1;
        let mut wide: Vec<(u64, u64)> = Vec::new();
        for (step, count) in self.steps.drain(..) {
            match wide.last_mut() {
                Some((last, sum)) if *last == step / factor => *sum += count,
                _ => wide.push((step / factor, count)),
            }
        }
        self.steps = wide;
    }

    pub fn total(&self) -> u64 {
        self.steps.iter().map(|(_, count)| count).sum()
    }

    /// The counts by the steps of a timeline.
    pub fn steps(&self, axis: &TimeAxis) -> Vec<u64> {
        let mut steps = vec![0; axis.points];
        for (number, count) in &self.steps {
            let step = (number * STEPS_S[self.step]).saturating_sub(axis.start_s) / axis.step_s;
            if let Some(sum) = usize::try_from(step).ok().and_then(|step| steps.get_mut(step)) {
                *sum += count;
            }
        }
        steps
    }
}

/// The steps of all timelines of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimeAxis {
    pub start_s: u64,
    pub step_s: u64,
    pub points: usize,
}

impl TimeAxis {
    /// From the first to the last request; no points without requests.
    pub fn new(span_us: Option<(u64, u64)>) -> Self {
        let Some((first_us, last_us)) = span_us else {
            return Self { start_s: 0, step_s: STEPS_S[0], points: 0 };
        };
        let (first_s, last_s) = (first_us / 1_000_000, last_us / 1_000_000);
        let points = |step: u64| last_s / step - first_s / step + 1;
        let fitting = STEPS_S.into_iter().find(|step| points(*step) <= MAX_POINTS);
        let step_s = fitting.unwrap_or(STEPS_S[STEPS_S.len() - 1]);
        let points = usize::try_from(points(step_s)).unwrap_or(usize::MAX);
        Self { start_s: first_s / step_s * step_s, step_s, points }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_has_the_finest_step_that_fits() {
        let hours = |count: u64| TimeAxis::new(Some((0, count * 3_600_000_000 - 1)));
        let table =
            [(1, 60), (24, 60), (25, 60), (26, 300), (24 * 7, 900), (24 * 60, 3_600), (24 * 70, 86_400)];
        for (count, step_s) in table {
            assert_eq!(hours(count).step_s, step_s, "{count} hours");
        }
        assert_eq!(TimeAxis::new(None).points, 0);
    }

    #[test]
    fn counts_are_summed_by_step() {
        let mut counts = MinuteCounts::default();
        for second in [65, 70, 119, 120, 400, 26 * 3_600] {
            counts.count(second * 1_000_000);
        }
        let fine = TimeAxis::new(Some((65_000_000, 400_000_000)));
        assert_eq!(counts.steps(&fine), [3, 1, 0, 0, 0, 1]);
        let coarse = TimeAxis::new(Some((65_000_000, 26 * 3_600_000_000)));
        assert_eq!((coarse.start_s, coarse.step_s), (0, 300));
        assert_eq!(counts.steps(&coarse)[..2], [4, 1]);
        assert_eq!(counts.steps(&coarse).iter().sum::<u64>(), 6);
    }

    #[test]
    fn counts_of_a_long_log_take_bounded_memory_and_are_exact_in_the_steps_of_its_timeline() {
        // Every 7 minutes for a year, and then once a day for a century.
        let year = (0..75_000_u64).map(|number| number * 420);
        let century = (400..36_500).map(|day| day * 86_400);
        for times in [year.clone().collect::<Vec<_>>(), year.chain(century).collect()] {
            let mut counts = MinuteCounts::default();
            let mut most = 0;
            for second in &times {
                counts.count(second * 1_000_000);
                most = most.max(if counts.step + 1 < STEPS_S.len() { counts.steps.len() } else { 0 });
            }
            assert!(most as u64 <= MAX_POINTS + 1, "{most}");
            let axis = TimeAxis::new(Some((0, times[times.len() - 1] * 1_000_000)));
            let mut expected = vec![0; axis.points];
            times.iter().for_each(|second| expected[(second / axis.step_s) as usize] += 1);
            assert_eq!(counts.steps(&axis), expected);
        }
    }
}
