//! What an answer says, before it is spelt in a wire format: rounding, clamping, and which limit speaks for all.

use std::time::Duration;

use crate::engine::{Applied, Code, Decision, Limit, LimitResult, Metadata, Request, Status};

use super::headers::Header;
use super::{headers, metadata};

/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;

/// What answers carry beside the statuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseOptions {
    /// Rate-limit headers for the client of the caller.
    pub headers: HeaderStyle,
    /// `Retry-After`, when denied.
    pub retry_after: bool,
    /// Facts about the decision for the caller's access log.
    pub dynamic_metadata: bool,
    /// Durations to the microsecond instead of whole seconds. Envoy cuts fractions off, so it must not get them.
    pub exact_durations: bool,
}

/// Which rate-limit headers answers carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderStyle {
    /// None.
    #[default]
    None,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`, as the reference service sends them.
    EnvoyRatelimit,
    /// `RateLimit-Policy` and `RateLimit` of the IETF draft.
    Ietf,
}

/// A decided request on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'d> {
    /// What was asked.
    pub request: &'d Request,
    /// What was decided.
    pub decision: &'d Decision,
    /// What to say of it.
    pub options: &'d ResponseOptions,
}

/// One descriptor's part of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Line<'d> {
    /// Its own code.
    pub code: Code,
    /// The limit it rests on; `None` where none counted.
    pub limit: Option<&'d Limit>,
    /// Units left, at most `u32::MAX`, which also stands for unlimited.
    pub remaining: u32,
    /// Until the limit is worth asking again; `None` where none counted.
    pub until_reset: Option<Duration>,
}

impl<'d> Answer<'d> {
    /// One line per descriptor, in order.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = Line<'d>> {
        let options = self.options;
        self.decision.statuses().map(move |status| line(status, options))
    }

    /// The headers for the client of the caller.
    #[must_use]
    pub fn headers(&self) -> Vec<Header> {
        headers::of(self.decision, self.options)
    }

    /// The facts for the caller's access log; `None` unless they are asked for.
    #[must_use]
    pub fn metadata(&self) -> Option<Metadata> {
        self.options.dynamic_metadata.then(|| metadata::of(self.request, self.decision))
    }
}

fn line<'d>(status: Status<'d>, options: &ResponseOptions) -> Line<'d> {
    let bare = Line { code: status.code, limit: None, remaining: 0, until_reset: None };
    match status.applied {
        Applied::Nothing | Applied::Skipped => bare,
        Applied::Unlimited(_) => Line { remaining: u32::MAX, ..bare },
        Applied::Limited(judged) => Line {
            limit: Some(judged.limit),
            remaining: remaining(&judged),
            until_reset: Some(until_reset(&judged, status.code, options)),
            ..bare
        },
    }
}

/// Units left, as wide as the wire has it.
pub(super) fn remaining(judged: &LimitResult<'_>) -> u32 {
    u32::try_from(judged.outcome.report.remaining).unwrap_or(u32::MAX)
}

fn until_reset(judged: &LimitResult<'_>, code: Code, options: &ResponseOptions) -> Duration {
    let us = judged.outcome.report.until_reset_us;
    if options.exact_durations {
        Duration::from_micros(us)
    } else {
        Duration::from_secs(reset_seconds(us, code))
    }
}

/// Whole seconds, rounded up; over the limit never 0, or callers would try again at once.
pub(super) fn reset_seconds(us: u64, code: Code) -> u64 {
    match code {
        Code::OverLimit => us.div_ceil(SECOND_US).max(1),
        Code::Ok => us.div_ceil(SECOND_US),
    }
}

/// The limit that speaks for the whole request in the reference service's headers: the one with the least left, the
/// first on a tie; but the last one that is over its limit, where any is, quota rules aside.
pub(super) fn spokesman(decision: &Decision) -> Option<(LimitResult<'_>, Code)> {
    let mut chosen: Option<(LimitResult<'_>, Code)> = None;
    let mut is_final = false;
    for status in decision.statuses() {
        let Applied::Limited(judged) = status.applied else {
            continue;
        };
        let is_quota = judged.rule.is_some_and(|rule| rule.quota);
        if status.code == Code::OverLimit && !is_quota {
            (chosen, is_final) = (Some((judged, status.code)), true);
        } else if !is_final && chosen.is_none_or(|(least, _)| remaining(&judged) < remaining(&least)) {
            chosen = Some((judged, status.code));
        }
    }
    chosen
}

/// The limit that decided: when denied the one to wait longest for, else the one with the least left.
pub(super) fn deciding(decision: &Decision) -> Option<LimitResult<'_>> {
    if decision.overall == Code::Ok {
        return spokesman(decision).map(|(judged, _)| judged);
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
