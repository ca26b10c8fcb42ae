//! What the head of a call must be, whatever service it asks (gRPC over HTTP/2, "Requests"): POST, the content type of
//! gRPC, no more bytes than allowed, and not from a web page. A browser sends a page's POST with another content type
//! without asking first, and asks with OPTIONS before it sends `application/grpc`.
//!
//! All headers are read in one pass: with a lookup for each, a call would take 500 instructions more (callgrind).

use http::{HeaderName, HeaderValue, Method, Request, header};

use super::http2::calls::CallHead;
use super::http2::deadline::time_limit;
use crate::decide::MessageError;
pub(crate) use crate::net::sending_page::{SEC_FETCH_SITE, SendingPage};

/// Of a header list, as HTTP/2 counts it: names, values, and 32 bytes for each header. A client of Envoy may choose
/// `tracestate`, which Envoy's tracers pass on: 60 KiB by default, all headers together.
pub(super) const MAX_HEADER_LIST_BYTES: usize = 128 * 1024;
/// Longer lists than this are unusual: callers send few headers.
const LONG_HEADER_LIST_BYTES: usize = 16 * 1024;
/// Of each header, besides its name and value (RFC 9113, section 6.5.2).
const HEADER_OVERHEAD_BYTES: usize = 32;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const CONTENT_TYPE: &[u8] = b"application/grpc";

/// Reads the head of a call.
///
/// # Errors
/// If the port does not serve such a call.
pub(super) fn read_head<B>(request: &Request<B>) -> Result<CallHead, MessageError> {
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
        return Err(MessageError::Method);
    }
    if !is_grpc {
        return Err(MessageError::ContentType);
    }
    if may_be_of_page && SendingPage::of_request(request.headers(), None) != SendingPage::None {
        return Err(MessageError::WebPage);
    }
    if bytes > MAX_HEADER_LIST_BYTES {
        return Err(MessageError::LongHeaders { bytes, max: MAX_HEADER_LIST_BYTES });
    }
    Ok(CallHead { time_limit: time_limit(timeout), is_long: bytes > LONG_HEADER_LIST_BYTES })
}

/// Of path and authority, which are headers in HTTP/2.
fn uri_bytes<B>(request: &Request<B>) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    path + request.uri().authority().map_or(0, |authority| authority.as_str().len())
}

/// `application/grpc`, alone or with a suffix or parameters; `application/grpc-web` is another protocol.
fn is_grpc_type(value: &HeaderValue) -> bool {
    let Some((kind, rest)) = value.as_bytes().split_at_checked(CONTENT_TYPE.len()) else { return false };
    // Nearly every client writes it in lower case, and equality costs 40 instructions less.
    let is_grpc = kind == CONTENT_TYPE || kind.eq_ignore_ascii_case(CONTENT_TYPE);
    is_grpc && matches!(rest.first(), None | Some(b'+' | b';'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            assert_eq!(
                read.map_err(|error| assert_eq!(error, MessageError::ContentType)).is_ok(),
                is_grpc,
                "{value}"
            );
        }
        assert_eq!(read_head(&request(&[])).err(), Some(MessageError::ContentType));
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
                read.map_err(|error| assert_eq!(error, MessageError::WebPage)).is_ok(),
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
        let (bytes, max) = (MAX_HEADER_LIST_BYTES + 1, MAX_HEADER_LIST_BYTES);
        assert_eq!(read(bytes), Err(MessageError::LongHeaders { bytes, max }));
    }

    #[test]
    fn the_first_time_limit_counts() {
        let headers = [("content-type", "application/grpc"), ("grpc-timeout", "20m"), ("grpc-timeout", "1m")];
        assert_eq!(read_head(&request(&headers)).map(|head| head.time_limit), Ok(Duration::from_millis(20)));
    }
}
