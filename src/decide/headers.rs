//! Rate-limit headers that Envoy adds to its response. Envoy copies them byte for byte, so they contain only
//! printable ASCII.

use std::fmt::Write as _;
use std::sync::Arc;

use engine::{Code, Decision, LimitResult, LimitSpec, Rule};

use super::{HeaderNames, HeaderStyle, ResponseOptions, summary};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'o> {
    pub name: &'o str,
    /// Printable ASCII.
    pub value: String,
}

pub(super) fn for_decision<'o>(decision: &Decision, options: &'o ResponseOptions) -> Vec<Header<'o>> {
    let mut headers = match options.headers {
        HeaderStyle::None => Vec::new(),
        HeaderStyle::EnvoyRatelimit => envoy_ratelimit_headers(decision, &options.header_names),
        HeaderStyle::Ietf => ietf_headers(decision),
    };
    if options.retry_after {
        headers.extend(retry_after_header(decision));
    }
    headers
}

fn envoy_ratelimit_headers<'o>(decision: &Decision, names: &'o HeaderNames) -> Vec<Header<'o>> {
    let Some((result, code)) = summary::header_limit(decision) else {
        return Vec::new();
    };
    let header = |name: &'o Arc<str>, value: u64| Header { name, value: value.to_string() };
    let reset = summary::reset_seconds(result.outcome.report.until_reset_us, code);
    vec![
        header(&names.limit, u64::from(result.limit.spec.requests_per_unit)),
        header(&names.remaining, u64::from(summary::remaining(&result))),
        header(&names.reset, reset),
    ]
}

/// The two structured fields of draft-ietf-httpapi-ratelimit-headers, one item per limit that can deny. Limits of rules
/// in shadow mode are omitted: clients must not slow down for them.
fn ietf_headers(decision: &Decision) -> Vec<Header<'static>> {
    let (mut policies, mut limits) = (String::new(), String::new());
    for result in decision.limit_results().filter(|result| !result.is_shadow()) {
        let separator = if policies.is_empty() { "" } else { ", " };
        let name = policy_name(&result);
        let (quota, window) = quota_and_window(&result.limit.spec);
        let report = &result.outcome.report;
        // Until more units are available, not until all are.
        let next = report.next_after_us.div_ceil(1_000_000);
        // Writing to a String cannot fail.
        let _ = write!(policies, "{separator}\"{name}\";q={quota};w={window}");
        let _ = write!(limits, "{separator}\"{name}\";r={};t={next}", report.remaining);
    }
    if policies.is_empty() {
        return Vec::new();
    }
    let header = |name, value| Header { name, value };
    vec![header("RateLimit-Policy", policies), header("RateLimit", limits)]
}

/// Quota, and window in seconds. For a bucket these are the burst and the time in which it drains, so that `r` never
/// exceeds `q` and `q / w` is the sustained rate.
fn quota_and_window(spec: &LimitSpec) -> (u32, u64) {
    let (limit, period) = (u64::from(spec.requests_per_unit), spec.period.seconds());
    let drain = |burst: u32| u64::from(burst).saturating_mul(period).div_ceil(limit.max(1));
    match spec.capacity() {
        burst if spec.algorithm.has_burst() => (burst, drain(burst)),
        quota => (quota, period),
    }
}

/// The name of an item in both fields: the limit's label, followed by its period if the limit has no name of its own
/// and its rule has several limits.
fn policy_name(result: &LimitResult<'_>) -> String {
    let several = |rule: &Rule| rule.limits.len() > 1;
    let mut name = printable(&result.limit.label);
    if result.limit.spec.name.is_none() && result.rule.is_some_and(several) {
        let period = result.limit.spec.period;
        let _ = write!(name, ".{}{}", period.multiplier(), period.unit().name());
    }
    name
}

/// Replaces every character by `_` that is not allowed in a header, or in a quoted string in a header.
#[must_use]
pub fn printable(text: &str) -> String {
    let is_allowed = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
    text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}

/// Whole seconds, rounded up, so that a retry after this time is allowed. `None` if no wait helps.
fn retry_after_header(decision: &Decision) -> Option<Header<'static>> {
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
    fn characters_that_split_a_header_are_replaced() {
        let hostile = "a\r\nSet-Cookie: x=\"1\\\"\0\x7f\u{e9}";
        assert_eq!(printable(hostile), "a__Set-Cookie: x=_1_____");
        assert!(printable(hostile).bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        assert!(!printable(hostile).contains(['"', '\\']));
        assert_eq!(printable("per user/10s"), "per user/10s");
    }
}
