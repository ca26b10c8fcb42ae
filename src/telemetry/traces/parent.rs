//! Reads the caller's span from its call's headers: W3C `traceparent` and `tracestate`, or the header or headers of B3.

use http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// A longer `tracestate` is left out, as its specification allows: it would be stored with the span.
const MAX_STATE_BYTES: usize = 512;

/// Returns a caller's span; `None` if the headers have none. Unreadable headers are ignored.
pub(super) fn parent(headers: &HeaderMap) -> Option<SpanContext> {
    let found = of_w3c(headers).or_else(|| of_b3(headers)).or_else(|| of_b3_parts(headers));
    found.filter(SpanContext::is_valid)
}

/// Returns `true` if B3 headers without ids say that the trace is not sampled.
pub(super) fn is_unsampled(headers: &HeaderMap) -> bool {
    let parts = text(headers, "x-b3-sampled").filter(|_| !headers.contains_key("x-b3-traceid"));
    matches!(text(headers, "b3").or(parts).map(str::trim), Some("0" | "false"))
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// `VERSION-TRACE-SPAN-FLAGS`. Versions after 00 can have more parts.
fn of_w3c(headers: &HeaderMap) -> Option<SpanContext> {
    let parts: Vec<&str> = text(headers, "traceparent")?.trim().split('-').collect();
    let &[version, trace, span, flags, ..] = parts.as_slice() else { return None };
    let is_version = version.len() == 2 && is_lower_hex(version) && version != "ff";
    if !is_version || (version == "00" && parts.len() != 4) {
        return None;
    }
    if trace.len() != 32
        || span.len() != 16
        || flags.len() != 2
        || !parts[1..4].iter().all(|p| is_lower_hex(p))
    {
        return None;
    }
    let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
    let state = text(headers, "tracestate").filter(|state| state.len() <= MAX_STATE_BYTES);
    let state = state.and_then(|state| state.parse().ok()).unwrap_or_default();
    context(trace, span, is_sampled, state)
}

/// `TRACE-SPAN-SAMPLED-PARENT`, the last two optional.
fn of_b3(headers: &HeaderMap) -> Option<SpanContext> {
    let mut parts = text(headers, "b3")?.trim().split('-');
    let (trace, span) = (parts.next()?, parts.next()?);
    let is_sampled = matches!(parts.next(), Some("1" | "d" | "true"));
    b3_context(trace, span, is_sampled)
}

fn of_b3_parts(headers: &HeaderMap) -> Option<SpanContext> {
    let (trace, span) = (text(headers, "x-b3-traceid")?, text(headers, "x-b3-spanid")?);
    let is_sampled = matches!(text(headers, "x-b3-sampled"), Some("1" | "true"))
        || matches!(text(headers, "x-b3-flags"), Some("1"));
    b3_context(trace.trim(), span.trim(), is_sampled)
}

/// A B3 trace id can have 64 bits.
fn b3_context(trace: &str, span: &str, is_sampled: bool) -> Option<SpanContext> {
    let is_id =
        |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !(is_id(trace, 32) || is_id(trace, 16)) || !is_id(span, 16) {
        return None;
    }
    context(trace, span, is_sampled, TraceState::default())
}

fn context(trace: &str, span: &str, is_sampled: bool, state: TraceState) -> Option<SpanContext> {
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    Some(SpanContext::new(trace, span, flags, true, state))
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    /// Trace, span and `true` if sampled; `None` without a parent.
    fn found(headers: &[(&'static str, &str)]) -> Option<(String, String, bool)> {
        let pairs = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value of a header"))
        });
        let parent = parent(&pairs.collect())?;
        Some((parent.trace_id().to_string(), parent.span_id().to_string(), parent.is_sampled()))
    }

    #[test]
    fn the_caller_is_found_in_each_kind_of_header() {
        type Case<'c> = (&'c [(&'static str, String)], &'c str, bool);
        let short = format!("{SPAN:0>32}");
        let cases: [Case<'_>; 8] = [
            (&[("traceparent", format!("00-{TRACE}-{SPAN}-01"))], TRACE, true),
            (&[("traceparent", format!("00-{TRACE}-{SPAN}-00"))], TRACE, false),
            (&[("traceparent", format!("01-{TRACE}-{SPAN}-03-more"))], TRACE, true),
            (&[("b3", format!("{TRACE}-{SPAN}-1-{SPAN}"))], TRACE, true),
            (&[("b3", format!("{}-{SPAN}-d", TRACE.to_uppercase()))], TRACE, true),
            (&[("b3", format!("{SPAN}-{SPAN}-0"))], &short, false),
            (
                &[("x-b3-traceid", TRACE.into()), ("x-b3-spanid", SPAN.into()), ("x-b3-sampled", "1".into())],
                TRACE,
                true,
            ),
            (
                &[("x-b3-traceid", SPAN.into()), ("x-b3-spanid", SPAN.into()), ("x-b3-flags", "1".into())],
                &short,
                true,
            ),
        ];
        for (headers, trace, is_sampled) in cases {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(found(&headers), Some((trace.to_owned(), SPAN.to_owned(), is_sampled)), "{headers:?}");
        }
    }

    #[test]
    fn b3_headers_without_ids_can_say_that_a_trace_is_not_sampled() {
        let cases = [
            // (headers, not sampled)
            (vec![("b3", "0")], true),
            (vec![("b3", "1")], false),
            (vec![("x-b3-sampled", "0")], true),
            (vec![("x-b3-sampled", "1")], false),
            (vec![("x-b3-sampled", "0"), ("x-b3-traceid", TRACE)], false),
            (vec![], false),
        ];
        for (headers, expected) in cases {
            let pairs = headers
                .iter()
                .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            assert_eq!(is_unsampled(&pairs.collect()), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_long_state_is_left_out_and_the_caller_is_found_all_the_same() {
        for (length, is_kept) in [(MAX_STATE_BYTES, true), (MAX_STATE_BYTES + 1, false)] {
            // A member has at most 256 bytes.
            let start = format!("a={0},b={0},c=", "x".repeat(200));
            let state = format!("{start}{}", "x".repeat(length - start.len()));
            let headers = [("traceparent", format!("00-{TRACE}-{SPAN}-01")), ("tracestate", state.clone())];
            let pairs = headers.map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::try_from(value).expect("a value of a header"))
            });
            let parent = parent(&pairs.into_iter().collect()).expect("a caller");
            let expected = if is_kept { state } else { String::new() };
            assert_eq!(parent.trace_state().header(), expected, "{length} bytes");
        }
    }

    #[test]
    fn headers_that_cannot_be_read_are_passed_over() {
        let zeros = "0".repeat(32);
        let b3 = format!("{TRACE}-{SPAN}-1");
        for traceparent in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", &TRACE[1..]),
            format!("00-{TRACE}-{SPAN}-0g"),
        ] {
            assert_eq!(found(&[("traceparent", &traceparent)]), None, "{traceparent}");
            assert!(found(&[("traceparent", &traceparent), ("b3", &b3)]).is_some(), "{traceparent}");
        }
        for b3 in ["", "0", "1", "a-b-1", &format!("{zeros}-{SPAN}-1")] {
            assert_eq!(found(&[("b3", b3)]), None, "{b3}");
        }
        assert_eq!(found(&[("x-b3-traceid", TRACE)]), None);
        assert_eq!(found(&[]), None);
    }
}
