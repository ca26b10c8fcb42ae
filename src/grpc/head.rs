//! Reads a call's head. Every service requires POST, a gRPC content type and at most the allowed bytes (gRPC over
//! HTTP/2, "Requests"), and refuses calls from web pages. A browser asks with OPTIONS before it sends
//! `application/grpc` for a page; it sends other content types without asking. All headers are read in one pass:
//! separate lookups would cost 500 instructions more (callgrind).

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::decide::NoDecision;
use crate::net::sending_page::{NO_PAGES, SEC_FETCH_SITE, SendingPage};
use crate::telemetry::traces::SpannedCall;

/// The path of the decision call.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Calls that decide: Envoy's first, then Kuadrant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionCall {
    ShouldRateLimit,
    CheckRateLimit,
    Report,
    Reserve,
    Commit,
}

impl DecisionCall {
    const PATHS: [(&str, Self); 5] = [
        (PATH, Self::ShouldRateLimit),
        ("/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit", Self::CheckRateLimit),
        ("/kuadrant.service.ratelimit.v1.RateLimitService/Report", Self::Report),
        ("/kuadrant.service.ratelimit.v1.RateLimitService/Reserve", Self::Reserve),
        ("/kuadrant.service.ratelimit.v1.RateLimitService/Commit", Self::Commit),
    ];

    pub(super) fn at(path: &str) -> Option<Self> {
        Self::PATHS.iter().find(|(known, _)| *known == path).map(|(_, call)| *call)
    }

    pub(super) fn spanned(self) -> SpannedCall {
        SpannedCall::Grpc(&Self::PATHS[self as usize].0[1..])
    }
}

/// Maximum header list, counted as in HTTP/2: names, values, and 32 bytes per header. End users can choose
/// `tracestate`, which Envoy's tracers pass on: 60 KiB by default, all headers together.
pub(super) const MAX_HEADER_LIST_BYTES: usize = 128 * 1024;
/// A call with a longer list is not held. Callers send few headers.
const LONG_HEADER_LIST_BYTES: usize = 16 * 1024;
/// HTTP/2 counts this for each header, in addition to name and value (RFC 9113, section 6.5.2).
const HEADER_OVERHEAD_BYTES: usize = 32;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Maximum digits of a timeout in the protocol.
const MAX_TIMEOUT_DIGITS: usize = 8;
const CONTENT_TYPE: &[u8] = b"application/grpc";

/// Time limit for a decision after its call's headers. The client then has as long again to take the answer. Also
/// limits a unary call of tonic's services. Longer than the time for a message to arrive (2 s) and the longest
/// `store.redis.timeout` (10 s) together.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) struct CallHead {
    pub(super) time_limit: Duration,
    /// `true` if the headers take too much memory for the call to be held.
    pub(super) is_long: bool,
}

/// Why the port refuses a call because of its head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedHead {
    pub(super) error: NoDecision,
    /// OK for a gRPC call.
    code: StatusCode,
}

const NO_POST: RefusedHead = RefusedHead {
    error: NoDecision::invalid("the method is not POST"),
    code: StatusCode::METHOD_NOT_ALLOWED,
};
const OTHER_TYPE: RefusedHead = RefusedHead {
    error: NoDecision::invalid("the content type is not application/grpc"),
    code: StatusCode::UNSUPPORTED_MEDIA_TYPE,
};
const OF_PAGE: RefusedHead =
    RefusedHead { error: NoDecision::invalid(NO_PAGES), code: StatusCode::FORBIDDEN };

impl RefusedHead {
    /// `true` if a decision call with this head is refused like any invalid request, which can be a denial.
    pub(super) fn may_be_denied(&self) -> bool {
        self.code == StatusCode::OK
    }

    /// Returns the HTTP and gRPC statuses for the client.
    pub(super) fn into_status(self) -> (StatusCode, Status) {
        let mut status = Status::from(self.error);
        if self.code == StatusCode::METHOD_NOT_ALLOWED {
            // HTTP requires the allowed method in the answer.
            status.metadata_mut().insert("allow", MetadataValue::from_static("POST"));
        }
        (self.code, status)
    }
}

fn long_headers(bytes: usize) -> RefusedHead {
    let text = format!("{bytes} bytes in the headers, more than the {MAX_HEADER_LIST_BYTES} allowed");
    RefusedHead { error: NoDecision::TooLong(text.into()), code: StatusCode::OK }
}

/// Reads a call's head.
///
/// # Errors
/// Why the port refuses the call.
pub(super) fn read_head<B>(request: &Request<B>) -> Result<CallHead, RefusedHead> {
    let (mut bytes, mut timeout, mut is_grpc, mut may_be_of_page) = (uri_bytes(request), None, false, false);
    for (name, value) in request.headers() {
        bytes += name.as_str().len() + value.len() + HEADER_OVERHEAD_BYTES;
        if *name == header::CONTENT_TYPE {
            is_grpc = is_grpc_type(value);
        } else if *name == GRPC_TIMEOUT {
            timeout = timeout.or(Some(value));
        } else if *name == header::ORIGIN || *name == SEC_FETCH_SITE {
            may_be_of_page = true;
        }
    }
    if request.method() != Method::POST {
        return Err(NO_POST);
    }
    if !is_grpc {
        return Err(OTHER_TYPE);
    }
    if may_be_of_page && SendingPage::of_request(request.headers(), None) != SendingPage::None {
        return Err(OF_PAGE);
    }
    if bytes > MAX_HEADER_LIST_BYTES {
        return Err(long_headers(bytes));
    }
    Ok(CallHead { time_limit: time_limit(timeout), is_long: bytes > LONG_HEADER_LIST_BYTES })
}

/// Bytes of path and authority, which are headers in HTTP/2.
fn uri_bytes<B>(request: &Request<B>) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    path + request.uri().authority().map_or(0, |authority| authority.as_str().len())
}

/// `application/grpc`, alone or with a suffix or parameters; `application/grpc-web` is a different protocol.
fn is_grpc_type(value: &HeaderValue) -> bool {
    let Some((kind, rest)) = value.as_bytes().split_at_checked(CONTENT_TYPE.len()) else { return false };
    // Nearly every client writes the type in lower case, and equality costs 40 instructions less.
    let is_grpc = kind == CONTENT_TYPE || kind.eq_ignore_ascii_case(CONTENT_TYPE);
    is_grpc && matches!(rest.first(), None | Some(b'+' | b';'))
}

/// Returns the time limit of a call from now on: the one that its client gives, at most [`CALL_TIMEOUT`]. `given` is
/// the header's value; an invalid one is ignored.
fn time_limit(given: Option<&HeaderValue>) -> Duration {
    let given = given.and_then(|value| parse_timeout(value.as_bytes()));
    given.map_or(CALL_TIMEOUT, |given| given.min(CALL_TIMEOUT))
}

fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > MAX_TIMEOUT_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| 10 * number + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(3_600 * number),
        b'M' => Duration::from_secs(60 * number),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let request = headers
            .iter()
            .fold(Request::post("http://s/p"), |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("valid")
    }

    #[test]
    fn the_content_type_is_that_of_grpc() {
        let table = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("Application/gRPC", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/json", false),
            ("text/plain", false),
            ("", false),
        ];
        for (value, is_grpc) in table {
            let read = read_head(&request(&[("content-type", value)]));
            assert_eq!(read.map_err(|error| assert_eq!(error, OTHER_TYPE)).is_ok(), is_grpc, "{value}");
        }
        assert_eq!(read_head(&request(&[])).err(), Some(OTHER_TYPE));
    }

    #[test]
    fn a_page_is_refused_as_on_json() {
        let table = [
            ("origin", "https://evil.example", false),
            ("origin", "null", false),
            ("sec-fetch-site", "cross-site", false),
            ("sec-fetch-site", "same-origin", false),
            ("sec-fetch-site", "none", true),
            ("sec-fetch-mode", "cors", true),
        ];
        for (name, value, is_served) in table {
            let read = read_head(&request(&[("content-type", "application/grpc"), (name, value)]));
            assert_eq!(
                read.map_err(|error| assert_eq!(error, OF_PAGE)).is_ok(),
                is_served,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn the_list_of_headers_is_measured_as_by_http2() {
        // Path, authority and content type have 2 + 1 + 12 + 16 + 32 bytes, `x` has 1 + 32 without its value.
        let fixed = 2 + 1 + 60 + 33;
        let read = |length: usize| {
            let value = "v".repeat(length - fixed);
            read_head(&request(&[("content-type", "application/grpc"), ("x", &value)]))
                .map(|head| head.is_long)
        };
        assert_eq!(read(LONG_HEADER_LIST_BYTES), Ok(false));
        assert_eq!(read(LONG_HEADER_LIST_BYTES + 1), Ok(true));
        assert_eq!(read(MAX_HEADER_LIST_BYTES), Ok(true));
        let bytes = MAX_HEADER_LIST_BYTES + 1;
        assert_eq!(read(bytes), Err(long_headers(bytes)));
    }

    #[test]
    fn the_first_time_limit_counts() {
        let headers = [("content-type", "application/grpc"), ("grpc-timeout", "20m"), ("grpc-timeout", "1m")];
        assert_eq!(read_head(&request(&headers)).map(|head| head.time_limit), Ok(Duration::from_millis(20)));
    }

    #[test]
    fn each_unit_is_read() {
        let times =
            ["2H", "2M", "2S", "20m", "20u", "20n", "99999999H"].map(|text| parse_timeout(text.as_bytes()));
        let seconds = [7_200, 120, 2].map(Duration::from_secs);
        assert_eq!(times[..3], seconds.map(Some));
        assert_eq!(times[3], Some(Duration::from_millis(20)));
        assert_eq!(times[4], Some(Duration::from_micros(20)));
        assert_eq!(times[5], Some(Duration::from_nanos(20)));
        assert_eq!(times[6], Some(Duration::from_secs(99_999_999 * 3_600)));
    }

    #[test]
    fn what_the_protocol_does_not_allow_is_no_time() {
        for text in ["", "S", "20", "123456789m", "-1S", "1.5S", "1 S", "1s", "\u{e9}S"] {
            assert_eq!(parse_timeout(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_call_has_at_most_its_longest_time() {
        let limit = |value| time_limit(Some(&HeaderValue::from_static(value)));
        assert_eq!(limit("20m"), Duration::from_millis(20));
        assert_eq!(limit("1H"), CALL_TIMEOUT);
        assert_eq!(limit("soon"), CALL_TIMEOUT);
        assert_eq!(time_limit(None), CALL_TIMEOUT);
    }
}
