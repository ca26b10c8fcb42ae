//! Builds the answer to a decision, before any wire format: one status per descriptor, headers, metadata, and the
//! options that select them. Envoy copies headers byte for byte, so they contain only printable ASCII.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    Algorithm, Applied, Code, Decision, Limit, LimitResult, LimitSpec, Metadata, Request, Role, Status,
};
use strum::{EnumString, VariantNames};

use super::announcements::{Announcements, distinct_name};
use super::metadata;
use super::problem::Problem;

const SECOND_US: u64 = 1_000_000;

/// Largest integer of a structured field: RFC 9651 allows 15 digits.
const MAX_FIELD_INTEGER: u64 = 999_999_999_999_999;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseOptions {
    /// Rate-limit headers that Envoy adds to its response to the client.
    pub headers: HeaderStyle,
    /// For [`HeaderStyle::EnvoyRatelimit`].
    pub header_names: HeaderNames,
    /// Name of the header for the upstream that announces limits; `None`: no such header.
    pub announce_header: Option<Arc<str>>,
    /// `true` if denials have the header `Retry-After`.
    pub retry_after: bool,
    /// `true` if denials contain a body: problem details (RFC 9457).
    pub problem: bool,
    /// `true` if answers have facts about the decision for Envoy's access log. A queue's delay and a receipt are sent
    /// even if `false`.
    pub dynamic_metadata: bool,
}

/// Names of the three envoyproxy/ratelimit headers, spelled as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    pub limit: Arc<str>,
    pub remaining: Arc<str>,
    pub reset: Arc<str>,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".into(),
            remaining: "RateLimit-Remaining".into(),
            reset: "RateLimit-Reset".into(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum HeaderStyle {
    #[default]
    None,
    /// Limit, remaining units and reset of one limit, as in envoyproxy/ratelimit.
    EnvoyRatelimit,
    /// `RateLimit-Policy` and `RateLimit` of the IETF drafts 08 to 11.
    Ietf,
}

#[derive(Clone, Debug)]
pub struct Answer<'d> {
    pub overall: Code,
    /// In the request's order.
    pub statuses: Vec<DescriptorStatus<'d>>,
    pub headers: Vec<Header<'d>>,
    /// Headers that Envoy adds to the request that it forwards. Empty for a denial.
    pub request_headers: Vec<Header<'d>>,
    pub metadata: Option<Metadata>,
    /// The body for the client; `None` if admitted, or if the options select none.
    pub problem: Option<Problem>,
    /// `None` if the request was not decided.
    pub decision: Option<&'d Decision>,
}

/// One descriptor's part of the answer.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorStatus<'d> {
    pub code: Code,
    /// The limit that decided the code; `None` if no limit applied.
    pub limit: Option<&'d Limit>,
    /// Units left; `u32::MAX` for an unlimited descriptor.
    pub remaining: u64,
    /// Time until the limit allows more; `None` if no limit applied.
    pub until_reset: Option<Duration>,
}

/// A header that Envoy adds to a request or to its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'d> {
    pub name: &'d str,
    /// Printable ASCII.
    pub value: String,
}

impl<'d> Answer<'d> {
    /// Builds an answer with the parts that the options select. Metadata with a queue's delay, a receipt or announced
    /// limits is always sent.
    pub(super) fn new(request: &Request, decision: &'d Decision, options: &'d ResponseOptions) -> Self {
        let announcements = Announcements::from_decision(decision);
        let metadata = if options.dynamic_metadata {
            Some(metadata::for_decision(request, decision, binding_limit(decision), &announcements))
        } else if decision.tells_caller() {
            metadata::without_facts(decision, &announcements)
        } else {
            None
        };
        let is_told = options.problem && decision.overall == Code::OverLimit;
        let announced = options.announce_header.as_ref().filter(|_| decision.overall == Code::Ok);
        let announced =
            announced.and_then(|name| Some(Header { name, value: announcements.header_value()? }));
        Self {
            overall: decision.overall,
            statuses: decision.statuses().map(descriptor_status).collect(),
            headers: headers_for(decision, options),
            request_headers: announced.into_iter().collect(),
            metadata,
            problem: is_told.then(|| Problem::of_denial(decision, binding_limit(decision))),
            decision: Some(decision),
        }
    }

    /// OVER_LIMIT and nothing else.
    pub(super) fn denial() -> Self {
        Self {
            overall: Code::OverLimit,
            statuses: Vec::new(),
            headers: Vec::new(),
            request_headers: Vec::new(),
            metadata: None,
            problem: None,
            decision: None,
        }
    }
}

fn descriptor_status(status: Status<'_>) -> DescriptorStatus<'_> {
    let no_limit = DescriptorStatus { code: status.code, limit: None, remaining: 0, until_reset: None };
    match status.applied {
        Applied::Nothing => no_limit,
        Applied::Unlimited(_) => DescriptorStatus { remaining: u32::MAX.into(), ..no_limit },
        Applied::Paused(limit, length_us) => DescriptorStatus {
            limit: Some(limit),
            until_reset: Some(Duration::from_secs(reset_seconds(length_us, status.code))),
            ..no_limit
        },
        Applied::Limited(LimitResult { limit, outcome, .. }) => DescriptorStatus {
            limit: Some(limit),
            remaining: outcome.report.remaining,
            // In whole seconds, because Envoy rounds fractions down.
            until_reset: Some(Duration::from_secs(reset_seconds(outcome.report.until_reset_us, status.code))),
            ..no_limit
        },
    }
}

/// Units in the 32 bits of the protocol, saturating.
pub fn protocol_units(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Whole seconds, rounded up. At least 1 if over the limit, because after 0 callers would retry immediately.
fn reset_seconds(us: u64, code: Code) -> u64 {
    match code {
        Code::OverLimit => us.div_ceil(SECOND_US).max(1),
        Code::Ok => us.div_ceil(SECOND_US),
    }
}

/// Returns the limit that the `RateLimit-*` headers describe, chosen as in envoyproxy/ratelimit: the last limit that is
/// over, except quota descriptors; if none is over, the first with the least remaining. Announced limits are left out:
/// clients must not slow down for them.
fn header_limit(decision: &Decision) -> Option<(LimitResult<'_>, Code)> {
    let mut chosen: Option<(LimitResult<'_>, Code)> = None;
    let mut is_over = false;
    let remaining = |result: &LimitResult<'_>| result.outcome.report.remaining;
    for status in decision.statuses() {
        let Applied::Limited(result) = status.applied else {
            continue;
        };
        if result.role == Role::Announced {
            continue;
        }
        if status.code == Code::OverLimit && !result.is_quota() {
            (chosen, is_over) = (Some((result, status.code)), true);
        } else if !is_over && chosen.is_none_or(|(least, _)| remaining(&result) < remaining(&least)) {
            chosen = Some((result, status.code));
        }
    }
    chosen
}

/// Returns the limit whose rule the metadata names: the one with the longest wait if the request is denied, otherwise
/// the headers' limit.
fn binding_limit(decision: &Decision) -> Option<LimitResult<'_>> {
    if decision.overall == Code::Ok {
        return header_limit(decision).map(|(result, _)| result);
    }
    let over = decision.statuses().filter(|status| status.code == Code::OverLimit);
    let limits = over.filter_map(|status| match status.applied {
        Applied::Limited(result) => Some(result),
        Applied::Nothing | Applied::Unlimited(_) | Applied::Paused(..) => None,
    });
    let wait = |result: &LimitResult<'_>| result.outcome.report.retry_after;
    limits.reduce(|longest, other| if wait(&other) > wait(&longest) { other } else { longest })
}

fn headers_for<'o>(decision: &Decision, options: &'o ResponseOptions) -> Vec<Header<'o>> {
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
    let Some((result, code)) = header_limit(decision) else {
        return Vec::new();
    };
    let header = |name: &'o Arc<str>, value: u64| Header { name, value: value.to_string() };
    let reset = reset_seconds(result.outcome.report.until_reset_us, code);
    vec![
        header(&names.limit, result.limit.spec.requests_per_unit),
        header(&names.remaining, result.outcome.report.remaining),
        header(&names.reset, reset),
    ]
}

/// Returns the two structured fields of draft-ietf-httpapi-ratelimit-headers, one item per limit that can deny. Limits
/// that never deny are left out: clients must not slow down for them.
fn ietf_headers(decision: &Decision) -> Vec<Header<'static>> {
    let (mut policies, mut limits) = (String::new(), String::new());
    for result in decision.limit_results().filter(|result| !result.never_denies()) {
        let separator = if policies.is_empty() { "" } else { ", " };
        let name = printable(&distinct_name(&result));
        let (quota, window) = quota_and_window(&result.limit.spec);
        let report = &result.outcome.report;
        // Until more units are available, not until all of them are.
        let next = report.next_after_us.div_ceil(1_000_000);
        let spec = &result.limit.spec;
        let has_slots = spec.algorithm == Algorithm::Concurrency;
        let slots = has_slots.then_some("concurrent-requests");
        let unit = unit_parameter(spec.unit_name.as_deref().or(slots));
        let window = if has_slots { String::new() } else { format!(";w={window}") };
        // Writing to a String cannot fail.
        let _ = write!(policies, "{separator}\"{name}\";q={quota}{unit}{window}");
        let remaining = report.remaining.min(MAX_FIELD_INTEGER);
        let _ = write!(limits, "{separator}\"{name}\";r={remaining};t={next}");
    }
    if policies.is_empty() {
        return Vec::new();
    }
    let header = |name, value| Header { name, value };
    vec![header("RateLimit-Policy", policies), header("RateLimit", limits)]
}

/// Returns the parameter for what the units are; empty for the drafts' default, which they spell in two ways.
fn unit_parameter(unit_name: Option<&str>) -> String {
    match unit_name {
        None | Some("requests" | "request") => String::new(),
        Some(unit @ ("content-bytes" | "concurrent-requests")) => format!(";qu=\"{unit}\""),
        // Rule files allow only `a-z` and `-`.
        Some(unit) => format!(";ratelimitd-unit=\"{unit}\""),
    }
}

/// Quota, and window in seconds. For a bucket: the burst, and the time in which it drains, so that `r` never exceeds
/// `q`, and `q / w` is the sustained rate.
fn quota_and_window(spec: &LimitSpec) -> (u64, u64) {
    let (limit, period) = (spec.requests_per_unit, spec.period.seconds());
    let drain = |burst: u64| burst.saturating_mul(period).div_ceil(limit.max(1));
    match spec.capacity() {
        burst if spec.algorithm.has_burst() => (burst, drain(burst)),
        quota => (quota.min(MAX_FIELD_INTEGER), period),
    }
}

/// Replaces every character that is not allowed in a header, or in a quoted string in a header, with `_`.
pub fn printable(text: &str) -> String {
    let is_allowed = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
    text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}

fn retry_after_header(decision: &Decision) -> Option<Header<'static>> {
    let seconds = retry_after_seconds(decision)?;
    Some(Header { name: "Retry-After", value: seconds.to_string() })
}

/// In whole seconds, rounded up, so that a retry after this time is allowed. `None` if admitted, or if no wait helps.
pub(super) fn retry_after_seconds(decision: &Decision) -> Option<u64> {
    let us = decision.retry_after().us().filter(|_| decision.overall == Code::OverLimit)?;
    Some(reset_seconds(us, decision.overall))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_rounded_up() {
        // (microseconds, code, seconds)
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

    #[test]
    fn characters_that_split_a_header_are_replaced() {
        let hostile = "a\r\nSet-Cookie: x=\"1\\\"\0\x7f\u{e9}";
        assert_eq!(printable(hostile), "a__Set-Cookie: x=_1_____");
        assert!(printable(hostile).bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        assert!(!printable(hostile).contains(['"', '\\']));
        assert_eq!(printable("per user/10s"), "per user/10s");
    }
}
