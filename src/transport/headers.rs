//! Headers for the client of the caller. Envoy writes them out byte for byte, so nothing but printable ASCII leaves.

use std::fmt::Write as _;

use crate::engine::{Code, Decision, LimitResult, LimitSpec, Rule};

use super::{HeaderStyle, ResponseOptions, summary};

/// One header; both parts are printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

/// The headers of one answer.
pub(super) fn for_decision(decision: &Decision, options: &ResponseOptions) -> Vec<Header> {
    let mut headers = match options.headers {
        HeaderStyle::None => Vec::new(),
        HeaderStyle::EnvoyRatelimit => envoy_ratelimit(decision),
        HeaderStyle::Ietf => ietf(decision),
    };
    if options.retry_after {
        headers.extend(retry_after(decision));
    }
    headers
}

fn envoy_ratelimit(decision: &Decision) -> Vec<Header> {
    let Some((judged, code)) = summary::header_limit(decision) else {
        return Vec::new();
    };
    let header = |name, value: u64| Header { name, value: value.to_string() };
    let reset = summary::reset_seconds(judged.outcome.report.until_reset_us, code);
    vec![
        header("RateLimit-Limit", u64::from(judged.limit.spec.requests_per_unit)),
        header("RateLimit-Remaining", u64::from(summary::remaining(&judged))),
        header("RateLimit-Reset", reset),
    ]
}

/// The two structured fields of draft-ietf-httpapi-ratelimit-headers, one item per limit that can deny. Rules in
/// shadow are left out: clients must not slow down for them.
fn ietf(decision: &Decision) -> Vec<Header> {
    let (mut policies, mut standings) = (String::new(), String::new());
    for judged in decision.limit_results().filter(|judged| !judged.is_shadow()) {
        let separator = if policies.is_empty() { "" } else { ", " };
        let name = policy_name(&judged);
        let (quota, window) = policy(&judged.limit.spec);
        let report = &judged.outcome.report;
        // Seconds until more can be taken, not until all can.
        let next = report.next_after_us.div_ceil(1_000_000);
        // Writing to a String cannot fail.
        let _ = write!(policies, "{separator}\"{name}\";q={quota};w={window}");
        let _ = write!(standings, "{separator}\"{name}\";r={};t={next}", report.remaining);
    }
    if policies.is_empty() {
        return Vec::new();
    }
    let header = |name, value| Header { name, value };
    vec![header("RateLimit-Policy", policies), header("RateLimit", standings)]
}

/// Quota and window in seconds. A bucket's are its burst and the time that takes to drain, so that `r` never exceeds
/// `q` and `q / w` is the sustained rate.
fn policy(spec: &LimitSpec) -> (u32, u64) {
    let (limit, period) = (u64::from(spec.requests_per_unit), spec.period.seconds());
    let drain = |burst: u32| u64::from(burst).saturating_mul(period).div_ceil(limit.max(1));
    match spec.max_cost() {
        burst if spec.algorithm.has_burst() => (burst, drain(burst)),
        quota => (quota, period),
    }
}

/// What ties the two fields together: the limit's name, or its rule's path, with the period where that is not enough
/// to tell the limits of one rule apart.
fn policy_name(judged: &LimitResult<'_>) -> String {
    let several = |rule: &Rule| rule.limits.len() > 1;
    let mut name = printable(&judged.limit.label);
    if judged.limit.spec.name.is_none() && judged.rule.is_some_and(several) {
        let period = judged.limit.spec.period;
        let _ = write!(name, ".{}{}", period.multiplier(), period.unit().name());
    }
    name
}

/// `text` with everything replaced by `_` that may not stand in a header, or in a quoted string within one.
#[must_use]
pub fn printable(text: &str) -> String {
    let is_plain = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
    text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// Whole seconds, rounded up, so that whoever waits that long is admitted. Nothing where waiting does not help.
fn retry_after(decision: &Decision) -> Option<Header> {
    if decision.overall == Code::Ok {
        return None;
    }
    let seconds = summary::reset_seconds(decision.retry_after().us()?, decision.overall);
    Some(Header { name: "Retry-After", value: seconds.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_splits_a_header_gets_through() {
        let hostile = "a\r\nSet-Cookie: x=\"1\\\"\0\x7f\u{e9}";
        assert_eq!(printable(hostile), "a__Set-Cookie: x=_1_____");
        assert!(printable(hostile).bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        assert!(!printable(hostile).contains(['"', '\\']));
        assert_eq!(printable("per user/10s"), "per user/10s");
    }
}
