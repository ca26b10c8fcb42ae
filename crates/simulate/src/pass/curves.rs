//! The curves of one limit: keys by demand, percentiles, the effect of other limits, and a recommendation.

use super::options::RecommendationBounds;
use super::peaks::{Peaks, WINDOWS_S};
use super::positions::{Histogram, rounded_up};
use super::tally::Row;
use crate::report::{DemandPoint, PeakWindow, Percentiles, Recommendation, WhatIfPoint};

/// Fewest keys for a recommendation.
const MIN_KEYS: u64 = 200;

/// The peaks of the kept keys of one limit, each list sorted.
pub(super) struct SortedPeaks {
    windows: [Vec<u64>; WINDOWS_S.len()],
    own: Vec<u64>,
    /// How many keys each kept one stands for.
    weight: u64,
}

impl SortedPeaks {
    pub fn new<'k>(peaks: impl Iterator<Item = &'k Peaks>, weight: u64) -> Self {
        let mut sorted = Self { windows: Default::default(), own: Vec::new(), weight };
        for peaks in peaks {
            for (list, counter) in sorted.windows.iter_mut().zip(peaks.windows) {
                list.push(counter.peak);
            }
            sorted.own.push(peaks.own.peak);
        }
        sorted.windows.iter_mut().for_each(|list| list.sort_unstable());
        sorted.own.sort_unstable();
        sorted
    }

    /// Number of keys; an estimate if they are sampled.
    pub fn keys(&self) -> u64 {
        self.own.len() as u64 * self.weight
    }

    pub fn windows(&self) -> Vec<PeakWindow> {
        let windows = WINDOWS_S.iter().zip(&self.windows);
        windows
            .map(|(window_s, list)| PeakWindow { window_s: *window_s, percentiles: percentiles(list) })
            .collect()
    }

    pub fn own(&self) -> Percentiles {
        percentiles(&self.own)
    }

    /// Keys whose demand in one window exceeds a limit.
    pub fn keys_over(&self, limit: u64) -> u64 {
        let above = self.own.len() - self.own.partition_point(|peak| *peak <= limit);
        above as u64 * self.weight
    }

    /// The demand of the key at a rank, counted down from 1 among the kept keys.
    fn at_rank(&self, rank: u64) -> u64 {
        let index = usize::try_from(rank.clamp(1, self.own.len().max(1) as u64)).unwrap_or(1);
        self.own.len().checked_sub(index).map_or(0, |index| self.own[index])
    }

    pub fn demand_curve(&self) -> Vec<DemandPoint> {
        let last = self.own.len() as u64;
        let mut points = Vec::new();
        let mut rank = 1;
        while rank <= last {
            points.push(DemandPoint { rank: (rank - 1) * self.weight + 1, units: self.at_rank(rank) });
            rank = if rank < last { (rank + 1).max(rank * 21 / 20).min(last) } else { last + 1 };
        }
        points
    }
}

fn percentiles(sorted: &[u64]) -> Percentiles {
    let at = |per_mille: usize| {
        let rank = (sorted.len() * per_mille).div_ceil(1_000).max(1);
        sorted.get(rank - 1).copied().unwrap_or(0)
    };
    Percentiles { p50: at(500), p90: at(900), p99: at(990), p999: at(999), max: at(1_000) }
}

/// The effect of other limits.
pub(super) enum Curve<'a> {
    /// From the counts of a fixed window: every limit is known.
    Windows { row: &'a Row, peaks: &'a SortedPeaks, has_good: bool },
    /// Decided by the kernel of the limit, only for these limits.
    Swept(Vec<WhatIfPoint>),
}

impl Curve<'_> {
    /// The points of the report. `marks`: limits that must be points if every limit is known.
    pub fn points(self, marks: &[u64]) -> Vec<WhatIfPoint> {
        match self {
            Self::Windows { row, peaks, has_good } => points_of_windows(row, peaks, marks, has_good),
            Self::Swept(points) => points,
        }
    }

    /// The smallest limit that at most this many of the kept keys exceed.
    fn smallest_for_keys(&self, most: u64, weight: u64) -> Option<u64> {
        match self {
            // The key ranked just after the allowed ones must not be over.
            Self::Windows { peaks, .. } => Some(peaks.at_rank(most + 1)),
            Self::Swept(points) => smallest(points, |point| point.keys_over <= most * weight),
        }
    }

    /// The smallest limit that denies at most this share of the requests: of the good ones, if known.
    fn smallest_for_requests(&self, row: &Row, has_good: bool, max_ppm: u64) -> Option<u64> {
        match self {
            Self::Windows { .. } => {
                let good: &Histogram = if has_good { &row.good_positions } else { &row.positions };
                Some(good.above().smallest(part(good.total(), max_ppm)))
            }
            Self::Swept(points) => {
                let most = part(if has_good { row.good_asked } else { row.asked }, max_ppm);
                smallest(points, |point| point.good_denied.unwrap_or(point.denied) <= most)
            }
        }
    }

    /// The limit to recommend for admitting this many units: rounded to two digits, or the next one tried.
    fn rounded_up(&self, units: u64) -> Option<u64> {
        match self {
            Self::Windows { .. } => Some(two_digits(units)),
            Self::Swept(points) => smallest(points, |point| point.limit >= units),
        }
    }
}

fn part(whole: u64, ppm: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(ppm) / 1_000_000).unwrap_or(u64::MAX)
}

fn smallest(points: &[WhatIfPoint], holds: impl Fn(&WhatIfPoint) -> bool) -> Option<u64> {
    points.iter().find(|point| holds(point)).map(|point| point.limit)
}

fn points_of_windows(row: &Row, peaks: &SortedPeaks, marks: &[u64], has_good: bool) -> Vec<WhatIfPoint> {
    let most = row.positions.max().max(peaks.own.last().copied().unwrap_or(0));
    let mut limits: Vec<u64> = marks.iter().copied().filter(|mark| *mark > 0).collect();
    let mut limit = 1;
    while limit < most {
        limits.push(rounded_up(limit));
        limit = (limit + 1).max(limit * 26 / 25);
    }
    limits.push(most);
    limits.sort_unstable();
    limits.dedup();
    let (denied, good_denied) = (row.positions.above(), row.good_positions.above());
    let point = |limit| WhatIfPoint {
        limit,
        denied: denied.count(limit),
        good_denied: has_good.then(|| good_denied.count(limit)),
        keys_over: peaks.keys_over(limit),
    };
    limits.into_iter().map(point).collect()
}

/// The smallest limit of a curve within `bounds`.
pub(super) fn recommend(
    row: &Row,
    peaks: &SortedPeaks,
    curve: &Curve<'_>,
    span_us: Option<(u64, u64)>,
    has_good: bool,
    bounds: RecommendationBounds,
) -> Recommendation {
    let RecommendationBounds { max_keys_ppm, max_good_denied_ppm, headroom_percent } = bounds;
    let empty =
        Recommendation { max_keys_ppm, max_good_denied_ppm, headroom_percent, ..Recommendation::default() };
    let none = |reason| Recommendation { no_recommendation: Some(reason), ..empty.clone() };
    if let Some(reason) = missing(row, peaks, span_us) {
        return none(reason);
    }
    let keys = peaks.own.len() as u64;
    let may_be_over = keys * max_keys_ppm / 1_000_000;
    let for_keys = |most| curve.smallest_for_keys(most, peaks.weight);
    let for_requests = curve.smallest_for_requests(row, has_good, max_good_denied_ppm);
    let needed = for_keys(may_be_over).zip(for_requests).map(|(a, b)| a.max(b).max(1));
    let limit = needed.and_then(|needed| curve.rounded_up((needed * headroom_percent).div_ceil(100)));
    let Some((needed, limit)) = needed.zip(limit) else {
        return none("no limit that was tried affects few enough keys and requests".to_owned());
    };
    // The rank of the quantile has a binomial distribution: 1.96 standard deviations are 95 %.
    let variance =
        u128::from(keys) * u128::from(max_keys_ppm) * u128::from(1_000_000 - max_keys_ppm.min(1_000_000));
    let deviation = (variance * 38_416 / 10_000_000_000_000_000).isqrt();
    let deviation = u64::try_from(deviation).unwrap_or(u64::MAX).saturating_add(1);
    let low = for_keys(may_be_over.saturating_add(deviation));
    let high = for_keys(may_be_over.saturating_sub(deviation));
    Recommendation {
        limit,
        needed,
        needed_low: low.unwrap_or(needed).min(needed).max(1),
        needed_high: high.map(|high| high.max(needed)),
        ..empty
    }
}

/// What a recommendation needs but the log lacks.
fn missing(row: &Row, peaks: &SortedPeaks, span_us: Option<(u64, u64)>) -> Option<String> {
    let span_s = span_us.map_or(0, |(first_us, last_us)| (last_us - first_us) / 1_000_000);
    let keys = peaks.own.len() as u64;
    if row.is_thinned {
        Some("the limit is not by the key of --sample".to_owned())
    } else if keys < MIN_KEYS {
        Some(format!("not enough data: {keys} of the {MIN_KEYS} keys that are needed"))
    } else if span_s < 2 * row.period_s {
        let needed_s = 2 * row.period_s;
        Some(format!("not enough data: {span_s} of the {needed_s} s that are needed, two periods"))
    } else {
        None
    }
}

/// Rounds up to two significant digits.
fn two_digits(number: u64) -> u64 {
    let mut unit = 1;
    while number.div_ceil(unit) >= 100 {
        unit *= 10;
    }
    number.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(units: &[u64]) -> Vec<Peaks> {
        let peaks = |units: &u64| {
            let mut peaks = Peaks::default();
            peaks.add(0, 0, *units);
            peaks
        };
        units.iter().map(peaks).collect()
    }

    #[test]
    fn percentiles_and_ranks_count_keys() {
        let all: Vec<u64> = (1..=1_000).collect();
        let peaks = SortedPeaks::new(keys(&all).iter(), 1);
        let expected = Percentiles { p50: 500, p90: 900, p99: 990, p999: 999, max: 1_000 };
        assert_eq!(peaks.own(), expected);
        assert_eq!([0, 1, 999, 1_000].map(|limit| peaks.keys_over(limit)), [1_000, 999, 1, 0]);
        let curve = peaks.demand_curve();
        assert_eq!(curve.first(), Some(&DemandPoint { rank: 1, units: 1_000 }));
        assert_eq!(curve.last(), Some(&DemandPoint { rank: 1_000, units: 1 }));
        assert!(curve.len() < 200);
        assert_eq!(SortedPeaks::new([].iter(), 1).own(), Percentiles::default());
    }

    #[test]
    fn the_recommendation_is_the_smallest_limit_within_the_bounds() {
        let all: Vec<u64> = (1..=1_000).collect();
        let peaks = SortedPeaks::new(keys(&all).iter(), 1);
        let mut row = Row { period_s: 60, ..Row::default() };
        all.iter().for_each(|units| row.positions.add(*units, 1));
        let bounds = RecommendationBounds { max_good_denied_ppm: 1_000_000, ..Default::default() };
        let long = Some((0, 600_000_000));
        let recommend = |peaks: &SortedPeaks, span_us, bounds| {
            let curve = Curve::Windows { row: &row, peaks, has_good: false };
            recommend(&row, peaks, &curve, span_us, false, bounds)
        };
        let found = recommend(&peaks, long, bounds);
        assert_eq!((found.needed, found.limit), (999, 1_200), "one key of a thousand may be over");
        assert!(found.needed_low < found.needed && found.needed_high == Some(1_000), "{found:?}");
        let strict = RecommendationBounds { max_good_denied_ppm: 0, ..bounds };
        assert_eq!(recommend(&peaks, long, strict).needed, 1_000);
        let short = recommend(&peaks, Some((0, 60_000_000)), bounds);
        let reason = "not enough data: 60 of the 120 s that are needed, two periods";
        assert_eq!(short.no_recommendation.as_deref(), Some(reason));
        let few = SortedPeaks::new(keys(&all[..100]).iter(), 1);
        let reason = "not enough data: 100 of the 200 keys that are needed";
        assert_eq!(recommend(&few, long, bounds).no_recommendation.as_deref(), Some(reason));
    }

    #[test]
    fn only_a_limit_that_was_tried_is_recommended() {
        let all: Vec<u64> = (1..=1_000).collect();
        let peaks = SortedPeaks::new(keys(&all).iter(), 1);
        let row = Row { period_s: 60, asked: 10_000, ..Row::default() };
        let recommend = |keys_over: &[(u64, u64)]| {
            let point = |(limit, keys_over): &(u64, u64)| WhatIfPoint {
                limit: *limit,
                denied: *keys_over,
                keys_over: *keys_over,
                ..WhatIfPoint::default()
            };
            let curve = Curve::Swept(keys_over.iter().map(point).collect());
            let long = Some((0, 600_000_000));
            recommend(&row, &peaks, &curve, long, false, RecommendationBounds::default())
        };
        // One key of a thousand, and one request of ten thousand may be over.
        let found = recommend(&[(1, 9), (2, 3), (3, 1), (4, 1), (6, 0)]);
        assert_eq!((found.needed, found.limit), (3, 4), "a fifth more than 3, rounded up");
        assert_eq!((found.needed_low, found.needed_high), (2, Some(6)));
        assert_eq!(recommend(&[(1, 9), (2, 3), (3, 1), (4, 1)]).needed_high, None);
        for too_few in [&[(1, 9), (2, 3)][..], &[(1, 9), (5, 1)]] {
            let found = recommend(too_few);
            assert!(
                found.no_recommendation.is_some_and(|reason| reason.starts_with("no limit that was tried"))
            );
        }
    }

    #[test]
    fn numbers_are_rounded_up_to_two_digits() {
        let table =
            [(1, 1), (99, 99), (100, 100), (101, 110), (1_199, 1_200), (98_001, 99_000), (99_500, 100_000)];
        for (number, rounded) in table {
            assert_eq!(two_digits(number), rounded, "{number}");
        }
    }
}
