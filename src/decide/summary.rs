//! The rounded and clamped numbers of an answer, and the one limit that headers and metadata report for the whole
//! request.

use engine::{Applied, Code, Decision, LimitResult};

const SECOND_US: u64 = 1_000_000;

/// Units left, clamped to the 32 bits of the wire format.
pub(super) fn remaining(result: &LimitResult<'_>) -> u32 {
    u32::try_from(result.outcome.report.remaining).unwrap_or(u32::MAX)
}

/// Whole seconds, rounded up. At least 1 if over the limit, because after 0 callers would retry at once.
pub(super) fn reset_seconds(us: u64, code: Code) -> u64 {
    match code {
        Code::OverLimit => us.div_ceil(SECOND_US).max(1),
        Code::Ok => us.div_ceil(SECOND_US),
    }
}

/// The limit that the `RateLimit-*` headers describe, chosen as envoyproxy/ratelimit does: the last limit that is over,
/// quota descriptors excepted; without one, the limit with the least remaining (the first of several).
pub(super) fn header_limit(decision: &Decision) -> Option<(LimitResult<'_>, Code)> {
    let mut chosen: Option<(LimitResult<'_>, Code)> = None;
    let mut is_over = false;
    for status in decision.statuses() {
        let Applied::Limited(result) = status.applied else {
            continue;
        };
        if status.code == Code::OverLimit && !result.is_quota() {
            (chosen, is_over) = (Some((result, status.code)), true);
        } else if !is_over && chosen.is_none_or(|(least, _)| remaining(&result) < remaining(&least)) {
            chosen = Some((result, status.code));
        }
    }
    chosen
}

/// The limit that metadata names as the rule of the decision: the limit with the longest wait if the request is denied,
/// else the limit of the headers.
pub(super) fn binding_limit(decision: &Decision) -> Option<LimitResult<'_>> {
    if decision.overall == Code::Ok {
        return header_limit(decision).map(|(result, _)| result);
    }
    let over = decision.statuses().filter(|status| status.code == Code::OverLimit);
    let limits = over.filter_map(|status| match status.applied {
        Applied::Limited(result) => Some(result),
        Applied::Nothing | Applied::Unlimited(_) | Applied::Skipped => None,
    });
    let wait = |result: &LimitResult<'_>| result.outcome.report.retry_after;
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
