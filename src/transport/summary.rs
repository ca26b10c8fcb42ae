//! What one limit's result amounts to in an answer: rounding, clamping, and which limit stands for the whole request.

use crate::engine::{Applied, Code, Decision, LimitResult};

/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;

/// Clamped to the 32 bits of the wire format.
pub(super) fn remaining(judged: &LimitResult<'_>) -> u32 {
    u32::try_from(judged.outcome.report.remaining).unwrap_or(u32::MAX)
}

/// Whole seconds, rounded up. Over the limit at least 1, because callers would retry at once after 0.
pub(super) fn reset_seconds(us: u64, code: Code) -> u64 {
    match code {
        Code::OverLimit => us.div_ceil(SECOND_US).max(1),
        Code::Ok => us.div_ceil(SECOND_US),
    }
}

/// The limit that the `RateLimit-*` headers describe, chosen as envoyproxy/ratelimit does: the last limit that is over,
/// quota rules excepted; without one, the limit with the least remaining (the first of several).
pub(super) fn header_limit(decision: &Decision) -> Option<(LimitResult<'_>, Code)> {
    let mut chosen: Option<(LimitResult<'_>, Code)> = None;
    let mut is_over = false;
    for status in decision.statuses() {
        let Applied::Limited(judged) = status.applied else {
            continue;
        };
        let is_quota = judged.rule.is_some_and(|rule| rule.quota);
        if status.code == Code::OverLimit && !is_quota {
            (chosen, is_over) = (Some((judged, status.code)), true);
        } else if !is_over && chosen.is_none_or(|(least, _)| remaining(&judged) < remaining(&least)) {
            chosen = Some((judged, status.code));
        }
    }
    chosen
}

/// The limit that the decision rests on: if denied, the one with the longest wait; else the one with the least
/// remaining.
pub(super) fn binding_limit(decision: &Decision) -> Option<LimitResult<'_>> {
    if decision.overall == Code::Ok {
        return header_limit(decision).map(|(judged, _)| judged);
    }
    let over = decision.statuses().filter(|status| status.code == Code::OverLimit);
    let limits = over.filter_map(|status| match status.applied {
        Applied::Limited(judged) => Some(judged),
        Applied::Nothing | Applied::Unlimited(_) | Applied::Skipped => None,
    });
    let wait = |judged: &LimitResult<'_>| judged.outcome.report.retry_after;
    limits.reduce(|longest, other| if wait(&other) > wait(&longest) { other } else { longest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_rounded_up() {
        // Microseconds, code, seconds.
        let table = [
            (0, Code::Ok, 0),
            (0, Code::OverLimit, 1),
            (1, Code::Ok, 1),
            (999_999, Code::OverLimit, 1),
            (1_000_000, Code::Ok, 1),
            (1_000_001, Code::OverLimit, 2),
        ];
        for (us, code, seconds) in table {
            assert_eq!(reset_seconds(us, code), seconds, "{us} us, {code:?}");
        }
    }
}
