//! Requests and durations of each of the last 900 seconds.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::telemetry::metrics::{DurationBuckets, MetricsSample, RequestFailure};

/// Seconds kept.
pub const SECONDS: usize = 900;
/// Seconds over which percentiles and rates are taken.
const DURATION_S: usize = 10;
const MINUTE_S: usize = 60;
/// A percentile of fewer calls is meaningless.
const LEAST_CALLS: u64 = 20;
const MICROSECONDS: f64 = 1e6;

/// One second. The classes of requests are exclusive: `requests` is their sum plus the admitted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Second {
    pub(super) requests: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    /// Admitted by a failure policy.
    pub(super) policy: u64,
    /// Denials without effect, by limit.
    pub(super) shadow: u64,
    pub(super) p50_us: Option<u64>,
    pub(super) p99_us: Option<u64>,
    pub(super) store_p99_us: Option<u64>,
}

/// Totals since the process started.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) metrics: MetricsSample,
    /// Counters evicted from memory.
    pub(super) evictions: u64,
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    seconds: VecDeque<Second>,
    /// Totals of the last minute, oldest first; the first is from just before it.
    sums: VecDeque<Sums>,
    pub(super) store_p50_us: Option<u64>,
}

impl Totals {
    /// Adds the second that ends with these totals. `passed`: seconds since the last one; `shadow`: denials without
    /// effect in them. `store_answers`: if `false`, the store's durations are ignored, because a store that is down
    /// refuses in microseconds.
    pub(super) fn add(&mut self, sums: Sums, passed: u64, shadow: u64, store_answers: bool) {
        if self.sums.is_empty() {
            // The first totals are taken when the process starts, so they belong to the first second.
            self.sums.push_back(Sums::default());
        }
        let (now, before) = (&sums.metrics, &self.sums_before(0).metrics);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let [ok, policy, denied, failed] =
            std::array::from_fn(|at| since(now.results[at], before.results[at]));
        let window = &self.sums_before(DURATION_S).metrics;
        let calls = calls_since(&now.calls, &window.calls);
        let store = calls_since(&now.store_calls, &window.store_calls);
        let of_store = |share| if store_answers { percentile_us(&store, share) } else { None };
        let store_p50_us = of_store(0.5);
        let second = Second {
            requests: ok + policy + denied + failed,
            denied,
            failed,
            policy,
            shadow: shadow + since(now.shadowed, before.shadowed),
            p50_us: percentile_us(&calls, 0.5),
            p99_us: percentile_us(&calls, 0.99),
            store_p99_us: of_store(0.99),
        };
        for _ in 1..passed.min(SECONDS as u64) {
            push(&mut self.seconds, Second::default(), SECONDS);
        }
        push(&mut self.seconds, second, SECONDS);
        push(&mut self.sums, sums, MINUTE_S + 1);
        self.store_p50_us = store_p50_us;
    }

    /// Returns the totals this many seconds before the newest, or else the oldest. There is at least one.
    fn sums_before(&self, seconds: usize) -> &Sums {
        &self.sums[(self.sums.len() - 1).saturating_sub(seconds)]
    }

    /// The last seconds, oldest first.
    pub(super) fn seconds(&self) -> impl DoubleEndedIterator<Item = &Second> + ExactSizeIterator {
        self.seconds.iter()
    }

    /// The newest second; zeros before the first.
    pub(super) fn newest(&self) -> Second {
        self.seconds.back().copied().unwrap_or_default()
    }

    /// Sum of a field over the newest `seconds` seconds.
    pub(super) fn sum(&self, seconds: usize, number: impl Fn(&Second) -> u64) -> u64 {
        self.seconds.iter().rev().take(seconds).map(number).sum()
    }

    /// Failures of the last minute by reason, except answers that were not taken.
    pub(super) fn failures_of_a_minute(&self) -> Vec<(RequestFailure, u64)> {
        let sum = |at: usize| self.grown_in_a_minute(|sums| sums.metrics.failures[at]);
        let all = RequestFailure::ALL.iter().copied().enumerate().map(|(at, reason)| (reason, sum(at)));
        all.filter(|(reason, count)| *count > 0 && *reason != RequestFailure::Untaken).collect()
    }

    /// Increase of a total in the last minute.
    pub(super) fn grown_in_a_minute(&self, sum: impl Fn(&Sums) -> u64) -> u64 {
        self.grown(MINUTE_S, sum).0
    }

    /// Increase of a total in the last ten seconds, and how many of these there were.
    pub(super) fn grown_lately(&self, sum: impl Fn(&MetricsSample) -> u64) -> (u64, usize) {
        self.grown(DURATION_S, |sums| sum(&sums.metrics))
    }

    fn grown(&self, seconds: usize, sum: impl Fn(&Sums) -> u64) -> (u64, usize) {
        let Some(newest) = self.sums.back() else { return (0, 0) };
        let grown = sum(newest).saturating_sub(sum(self.sums_before(seconds)));
        (grown, seconds.min(self.sums.len() - 1))
    }
}

fn push<T>(ring: &mut VecDeque<T>, value: T, most: usize) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(value);
}

/// The calls since `before`.
fn calls_since(calls: &DurationBuckets, before: &DurationBuckets) -> DurationBuckets {
    let mut since = calls.clone();
    since.calls = since.calls.saturating_sub(before.calls);
    for (bucket, (_, calls)) in since.up_to.iter_mut().zip(&before.up_to) {
        bucket.1 = bucket.1.saturating_sub(*calls);
    }
    since
}

/// Returns a percentile in microseconds, interpolated within its bucket as in Prometheus's `histogram_quantile`.
fn percentile_us(durations: &DurationBuckets, share: f64) -> Option<u64> {
    if durations.calls < LEAST_CALLS {
        return None;
    }
    let rank = share * durations.calls as f64;
    let mut below = (0.0, 0);
    for &(bound, calls) in &durations.up_to {
        if calls as f64 >= rank {
            let (from, calls_below) = below;
            let part = (rank - calls_below as f64) / (calls - calls_below).max(1) as f64;
            return Some(((from + (bound - from) * part) * MICROSECONDS) as u64);
        }
        below = (bound, calls);
    }
    Some((below.0 * MICROSECONDS) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(results: [u64; 4]) -> Sums {
        of(MetricsSample { results, ..MetricsSample::default() })
    }

    fn of(metrics: MetricsSample) -> Sums {
        Sums { metrics, evictions: 0 }
    }

    #[test]
    fn the_classes_of_a_second_add_up() {
        let mut totals = Totals::default();
        totals.add(sums([5, 0, 0, 0]), 1, 0, true);
        totals.add(sums([9, 2, 3, 1]), 1, 4, true);
        let second = totals.newest();
        assert_eq!((second.requests, second.policy, second.denied, second.failed), (10, 2, 3, 1));
        assert_eq!((second.shadow, totals.seconds().len()), (4, 2));
        // A missed second counts as one without requests.
        totals.add(sums([10, 2, 3, 1]), 2, 0, true);
        assert_eq!(totals.seconds().map(|second| second.requests).collect::<Vec<_>>(), [5, 10, 0, 1]);
    }

    #[test]
    fn only_fifteen_minutes_are_kept() {
        let mut totals = Totals::default();
        for second in 1..=1_000 {
            totals.add(sums([second * 3, 0, 0, 0]), 1, 0, true);
        }
        assert_eq!((totals.seconds().len(), totals.sum(SECONDS, |second| second.requests)), (900, 2_700));
        totals.add(sums([3_000, 0, 0, 0]), 100_000, 0, true);
        assert_eq!((totals.seconds().len(), totals.sum(SECONDS, |second| second.requests)), (900, 0));
    }

    #[test]
    fn a_percentile_is_interpolated_within_its_bucket() {
        let buckets = |calls, up_to: &[(f64, u64)]| DurationBuckets { calls, up_to: up_to.to_vec() };
        let some = buckets(100, &[(0.001, 0), (0.002, 80), (0.005, 100)]);
        assert_eq!(percentile_us(&some, 0.5), Some(1_625));
        assert_eq!(percentile_us(&some, 0.99), Some(4_850));
        let slow = buckets(100, &[(0.001, 10), (1.0, 20)]);
        assert_eq!(percentile_us(&slow, 0.99), Some(1_000_000), "above all bounds");
        let few = buckets(19, &[(0.001, 19)]);
        assert_eq!(percentile_us(&few, 0.5), None);
        assert_eq!(calls_since(&some, &buckets(90, &[(0.001, 0), (0.002, 75), (0.005, 90)])).calls, 10);
    }

    #[test]
    fn a_store_that_is_away_has_no_latency() {
        let mut totals = Totals::default();
        let store_calls = |calls| DurationBuckets { calls, up_to: vec![(0.000_05, calls)] };
        let now = MetricsSample { store_calls: store_calls(100), ..MetricsSample::default() };
        totals.add(of(now), 1, 0, true);
        assert_eq!((totals.newest().store_p99_us, totals.store_p50_us), (Some(49), Some(25)));
        let refused = MetricsSample { store_calls: store_calls(500), ..MetricsSample::default() };
        totals.add(of(refused), 1, 0, false);
        assert_eq!((totals.newest().store_p99_us, totals.store_p50_us), (None, None));
    }

    #[test]
    fn failures_of_a_minute_have_their_reasons() {
        let mut totals = Totals::default();
        let mut now = sums([0; 4]);
        now.metrics.failures[RequestFailure::Store as usize] = 3;
        now.metrics.failures[RequestFailure::Untaken as usize] = 3;
        totals.add(now.clone(), 1, 0, true);
        assert_eq!(totals.failures_of_a_minute(), [(RequestFailure::Store, 3)]);
        (0..60).for_each(|_| totals.add(now.clone(), 1, 0, true));
        assert_eq!(totals.failures_of_a_minute(), []);
    }
}
