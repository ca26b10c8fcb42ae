//! Describes the parameters of a limit, one sentence each.

use std::time::Duration;

use base::readable_duration;
use engine::{Algorithm, Limit, LimitSpec, Pacing, Refill, ShardBy, Unit};

use crate::calendar::local_time;

/// How much a limit admits.
pub(super) fn parameters(limit: &Limit) -> String {
    let spec = &limit.spec;
    if spec.unlimited {
        let counted = if limit.has_counter() { "counted" } else { "never counted" };
        return format!("unlimited: {counted}, always admitted");
    }
    if !limit.has_counter() {
        let effect =
            if limit.never_denies() { "all requests are over the limit" } else { "it blocks all requests" };
        return format!(
            "nothing, because requests_per_unit is 0: {effect}, whatever they cost, without a counter"
        );
    }
    let (rate, period, burst) = (rate(spec), period(spec), spec.capacity());
    match spec.algorithm {
        Algorithm::FixedWindow => match &spec.calendar {
            Some(calendar) => format!("{rate}, in windows of the calendar {calendar}"),
            None => format!("{rate}, in windows aligned to the Unix epoch"),
        },
        Algorithm::SlidingWindow => format!("{rate}, estimated over the last {period} from two buckets"),
        Algorithm::SlidingLog => format!("{rate}, exactly, over the last {period}"),
        Algorithm::Gcra => format!("{rate}, up to {burst} at once, then one every {}", interval(spec)),
        Algorithm::TokenBucket => match spec.refill {
            Refill::Continuous => {
                format!("a bucket of {burst} tokens that gains one token every {} ({rate})", interval(spec))
            }
            Refill::Interval => format!(
                "a bucket of {burst} tokens that gains {} at the end of every {period}, counted from its first use",
                spec.requests_per_unit
            ),
        },
        Algorithm::Concurrency => {
            format!("{} at once, each at most {period} unless it is renewed", spec.requests_per_unit)
        }
        Algorithm::LeakyBucket => match spec.pacing {
            Pacing::Meter => {
                format!("a level of up to {burst} that falls by one every {} ({rate})", interval(spec))
            }
            Pacing::Queue => format!(
                "a queue of up to {burst} that releases one every {} ({rate}); answers say how long to wait",
                interval(spec)
            ),
        },
    }
}

/// Such as `10 per minute, gcra, burst 20`. For answers, logs, and comparing the two.
pub fn limit_text(limit: &Limit) -> String {
    let spec = &limit.spec;
    if limit.blocked {
        return "blocked".to_owned();
    }
    if spec.unlimited {
        return "unlimited".to_owned();
    }
    if spec.algorithm == Algorithm::Concurrency {
        return format!("{} at once", spec.requests_per_unit);
    }
    let burst =
        if spec.algorithm.has_burst() { format!(", burst {}", spec.capacity()) } else { String::new() };
    format!("{} per {}, {}{burst}", spec.requests_per_unit, spec.period, spec.algorithm.into_str())
}

/// Which counters share a node of a Redis Cluster.
pub(super) fn shard_by(shard_by: ShardBy) -> &'static str {
    match shard_by {
        ShardBy::FirstEntry => "first_entry: one cluster node for all descriptors with this first entry",
        ShardBy::Domain => "domain: one cluster node for the whole domain",
        ShardBy::Descriptor => "descriptor: a cluster node chosen for each descriptor",
    }
}

fn rate(spec: &LimitSpec) -> String {
    format!("{} per {}", spec.requests_per_unit, period(spec))
}

/// The period. Without a calendar it includes the days of a month and a year.
fn period(spec: &LimitSpec) -> String {
    let days = match spec.period.unit() {
        _ if spec.calendar.is_some() => None,
        Unit::Month => Some(30),
        Unit::Year => Some(365),
        Unit::Second | Unit::Minute | Unit::Hour | Unit::Day | Unit::Week => None,
    };
    days.map_or_else(|| spec.period.to_string(), |days| format!("{} of {days} days", spec.period))
}

/// The calendar window at `now_us`, in local time; `None` without a calendar.
pub(super) fn window(spec: &LimitSpec, now_us: u64) -> Option<String> {
    let calendar = spec.calendar.as_ref()?;
    let zone = calendar.zone();
    let (start_us, end_us) = calendar.window(now_us);
    Some(format!("{} to {} ({zone})", local_time(zone, start_us)?, local_time(zone, end_us)?))
}

/// The time between two units at the sustained rate.
fn interval(spec: &LimitSpec) -> String {
    let limit = spec.requests_per_unit.max(1);
    let period_us = spec.period.us();
    if period_us < limit {
        return "less than 1us".to_owned();
    }
    let interval_us = period_us / limit;
    let shown_to_us = match interval_us {
        0..60_000_000 => 1,
        60_000_000..86_400_000_000 => 1_000_000,
        _ => 60_000_000,
    };
    let is_exact = period_us.is_multiple_of(limit) && interval_us.is_multiple_of(shown_to_us);
    let about = if is_exact { "" } else { "about " };
    format!("{about}{}", readable_duration(Duration::from_micros(interval_us)))
}
