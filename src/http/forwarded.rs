//! Reads the client's request from the call that its proxy sends to `/check`.
//!
//! - `/check`: from the headers `X-Forwarded-*` or `X-Original-*`. A client can send these as well, and a proxy
//!   forwards those it does not set. So contradicting headers are an error, not a choice.
//! - `/check/...`: method and host are those of the call, the path follows `/check`. No header changes them.

use std::borrow::Cow;

use engine::text_of_bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use map::RequestField;

use crate::decide::NoDecision;
use crate::telemetry::metrics::RequestFailure;

pub(super) const PATH: &str = "/check";

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers with the client's method, path and host.
const METHOD: [&str; 2] = ["x-forwarded-method", "x-original-method"];
const URI: [&str; 3] = ["x-forwarded-uri", "x-original-uri", "x-original-url"];
const HOST: [&str; 2] = ["x-forwarded-host", "x-original-host"];

const UNFORWARDED: NoDecision = NoDecision::invalid(
    "the request has no X-Forwarded-*, X-Original-* or X-Envoy-* header, so no proxy has sent it",
);

fn contradiction(first: &str, second: &str) -> NoDecision {
    let text = format!(
        "the headers {first} and {second} contradict each other: the proxy must set one, and remove the other"
    );
    NoDecision::Refused(RequestFailure::Invalid, text.into())
}

/// A web page can send a GET to any address, but these headers only after a CORS preflight, which does not carry them.
/// Envoy always sends `X-Envoy-Internal`. Headers that reveal a page, such as `Origin`, may come from the proxy's
/// client.
pub(super) fn refuse_unforwarded(headers: &HeaderMap) -> Result<(), NoDecision> {
    let is_of_proxy = |name: &HeaderName| {
        ["x-forwarded-", "x-original-", "x-envoy-"].iter().any(|kind| name.as_str().starts_with(kind))
    };
    if headers.keys().any(is_of_proxy) { Ok(()) } else { Err(UNFORWARDED) }
}

/// The client's request, in its proxy's call.
pub(super) struct ForwardedRequest<'c>(pub &'c Parts);

impl<'c> ForwardedRequest<'c> {
    /// Returns a field's value. As in a log, an empty value and `-` mean none, except for the method: a client can
    /// choose `-` as its method, and must not be able to drop it.
    pub fn value(&self, field: &RequestField) -> Result<Option<Cow<'c, str>>, NoDecision> {
        let headers = &self.0.headers;
        let value = match field {
            RequestField::Method => match self.own_path() {
                None => agreed(headers, &METHOD)?.or(Some(self.0.method.as_str().into())),
                Some(_) => Some(self.0.method.as_str().into()),
            },
            RequestField::Path => match self.own_path() {
                None => agreed(headers, &URI)?,
                Some(path) => Some(path.into()),
            },
            RequestField::Host => self.host()?,
            RequestField::ClientAddress => last_address(headers),
            RequestField::ReceivedForwardedFor => {
                joined(headers, X_FORWARDED_FOR.as_str()).and_then(received)
            }
            RequestField::Header(name) => joined(headers, name),
        };
        let is_none = |value: &str| value.is_empty() || value == "-" && *field != RequestField::Method;
        Ok(value.filter(|value| !is_none(value)))
    }

    /// The path below `/check`, with its query.
    fn own_path(&self) -> Option<&'c str> {
        let path = self.0.uri.path_and_query()?.as_str();
        path.strip_prefix(PATH).filter(|rest| rest.starts_with('/'))
    }

    fn host(&self) -> Result<Option<Cow<'c, str>>, NoDecision> {
        let named = match self.own_path() {
            None => agreed(&self.0.headers, &HOST)?,
            Some(_) => None,
        };
        Ok(named.or_else(|| self.0.headers.get(header::HOST).map(text)))
    }
}

/// Returns the value of these headers, all of which must agree.
fn agreed<'c>(headers: &'c HeaderMap, names: &[&'static str]) -> Result<Option<Cow<'c, str>>, NoDecision> {
    let mut found: Option<(&'static str, Cow<'c, str>)> = None;
    for &name in names {
        for value in headers.get_all(name) {
            let value = part(text(value), without_origin);
            match &found {
                Some((first, known)) if *known != value => {
                    return Err(contradiction(first, name));
                }
                Some(_) => {}
                None => found = Some((name, value)),
            }
        }
    }
    Ok(found.map(|(_, value)| value))
}

/// `X-Original-URL` can be a whole URL: returns its path and query.
fn without_origin(uri: &str) -> &str {
    match uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://")) {
        Some(rest) => rest.find('/').map_or("/", |start| &rest[start..]),
        None => uri,
    }
}

/// Returns the address that the proxy itself added: whatever comes before can be written by a client.
fn last_address(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let last = text(headers.get_all(X_FORWARDED_FOR).iter().next_back()?);
    Some(part(last, |last| last.rsplit(',').next().unwrap_or_default().trim()))
}

/// `X-Forwarded-For` without the address that the proxy added; `None` if that was the only one.
fn received(list: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let end = list.rfind(',')?;
    Some(part(list, |list| list[..end].trim()))
}

/// Joins a header's values, separated as in a single header with several values.
fn joined<'c>(headers: &'c HeaderMap, name: &str) -> Option<Cow<'c, str>> {
    let mut values = headers.get_all(name).iter();
    let first = text(values.next()?);
    Some(values.fold(first, |list, value| Cow::Owned(format!("{list}, {}", text(value)))))
}

fn text(value: &HeaderValue) -> Cow<'_, str> {
    let bytes = value.as_bytes();
    std::str::from_utf8(bytes).map_or_else(|_| Cow::Owned(text_of_bytes(bytes)), Cow::Borrowed)
}

/// Returns a part of a string, borrowed if the string is.
fn part(text: Cow<'_, str>, of: impl Fn(&str) -> &str) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(of(text)),
        Cow::Owned(text) => Cow::Owned(of(&text).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Headers<'h> = &'h [(&'h str, &'h [u8])];

    /// The value of a field of a call, or why it has none.
    fn value(uri: &str, headers: Headers<'_>, name: &str) -> Result<Option<String>, String> {
        let mut call = http::Request::builder().method("PUT").uri(uri);
        for (name, value) in headers {
            call = call.header(*name, *value);
        }
        let (call, ()) = call.body(()).expect("a request").into_parts();
        let field = RequestField::from_name(name).expect("a field of a request");
        let value = ForwardedRequest(&call).value(&field);
        value.map(|value| value.map(Cow::into_owned)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_proxy_says_by_headers_what_its_client_asked_for() {
        let forwarded: Headers<'_> = &[
            ("x-forwarded-method", b"POST"),
            ("x-forwarded-uri", b"/a?b"),
            ("x-forwarded-host", b"example.com:8443"),
            ("host", b"ratelimitd"),
        ];
        let original: Headers<'_> = &[("x-original-url", b"https://example.com/a?b"), ("host", b"h")];
        let table = [
            (forwarded, "method", Some("POST")),
            (forwarded, "path", Some("/a?b")),
            (forwarded, "host", Some("example.com:8443")),
            (original, "method", Some("PUT")),
            (original, "path", Some("/a?b")),
            (original, "host", Some("h")),
            (&[("x-original-url", b"http://example.com")], "path", Some("/")),
            (&[("x-original-uri", b"/a"), ("x-original-url", b"http://h/a")], "path", Some("/a")),
            (&[("x-forwarded-method", b"-")], "method", Some("-")),
            (&[], "path", None),
            (&[], "host", None),
        ];
        for (headers, name, expected) in table {
            let found = value("/check?own", headers, name);
            assert_eq!(found, Ok(expected.map(str::to_owned)), "{headers:?} {name}");
        }
    }

    #[test]
    fn headers_that_contradict_each_other_are_an_error() {
        let table: [(&str, Headers<'_>, &str); 4] = [
            (
                "path",
                &[("x-original-uri", b"/limited"), ("x-forwarded-uri", b"/free")],
                "x-forwarded-uri and x-original-uri",
            ),
            ("path", &[("x-forwarded-uri", b"/a"), ("x-forwarded-uri", b"/b")], "x-forwarded-uri"),
            ("method", &[("x-original-method", b"GET"), ("x-forwarded-method", b"PUT")], "x-original-method"),
            ("host", &[("x-original-host", b"a"), ("x-forwarded-host", b"b")], "x-original-host"),
        ];
        for (name, headers, expected) in table {
            let reason = value("/check", headers, name).expect_err("a contradiction");
            assert!(reason.contains(expected), "{reason}");
            // Below /check the call itself has the value.
            assert!(value("/check/x", headers, name).is_ok(), "{headers:?}");
        }
    }

    #[test]
    fn a_path_below_check_is_the_path_of_the_client() {
        let headers: Headers<'_> = &[("x-forwarded-uri", b"/free"), ("host", b"example.com")];
        let table = [("path", "/a/b?c"), ("method", "PUT"), ("authority", "example.com")];
        for (name, expected) in table {
            assert_eq!(value("/check/a/b?c", headers, name), Ok(Some(expected.to_owned())), "{name}");
        }
        assert_eq!(value("/check/", headers, "path"), Ok(Some("/".to_owned())));
        assert_eq!(value("/check/?a", headers, "path"), Ok(Some("/?a".to_owned())));
    }

    #[test]
    fn the_client_is_the_address_that_the_proxy_has_added() {
        let table: [(Headers<'_>, Option<&str>, Option<&str>); 6] = [
            (&[("x-forwarded-for", b"192.0.2.7")], Some("192.0.2.7"), None),
            (&[("x-forwarded-for", b"10.0.0.1 , 192.0.2.7 ")], Some("192.0.2.7"), Some("10.0.0.1")),
            (
                &[("x-forwarded-for", b"forged"), ("x-forwarded-for", b"10.0.0.1, 192.0.2.7")],
                Some("192.0.2.7"),
                Some("forged, 10.0.0.1"),
            ),
            (&[("x-forwarded-for", b"forged,")], None, Some("forged")),
            (&[("x-forwarded-for", b"caf\xe9, \xff")], Some("%xFF"), Some("caf%xE9")),
            (&[], None, None),
        ];
        for (headers, client, received) in table {
            let found = |name| value("/check", headers, name).expect("a value or none");
            assert_eq!(found("remote_addr").as_deref(), client, "{headers:?}");
            assert_eq!(found("http_x_forwarded_for").as_deref(), received, "{headers:?}");
        }
    }

    #[test]
    fn a_header_has_all_its_values() {
        let headers: Headers<'_> =
            &[("x-key", b"a"), ("X-Key", b"b\xff"), ("x-none", b"-"), ("x-empty", b"")];
        let found = |name| value("/check", headers, name).expect("a value or none");
        assert_eq!(found("X-Key").as_deref(), Some("a, b%xFF"));
        assert_eq!((found("x-none"), found("x-empty"), found("x-other")), (None, None, None));
    }

    #[test]
    fn a_call_without_a_header_of_a_proxy_is_refused() {
        let with = |name: &'static str| {
            HeaderMap::from_iter([(HeaderName::from_static(name), "x".parse().expect("x"))])
        };
        for name in ["x-forwarded-for", "x-forwarded-uri", "x-original-method"] {
            assert_eq!(refuse_unforwarded(&with(name)), Ok(()), "{name}");
        }
        for name in ["origin", "x-forwarded", "accept"] {
            assert_eq!(refuse_unforwarded(&with(name)), Err(UNFORWARDED), "{name}");
        }
    }

    /// Fragments of what values are searched for, and bytes that are not UTF-8.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            &b","[..],
            b" ",
            b":",
            b"[",
            b"]",
            b"/",
            b"?",
            b"http://",
            b"https://",
            b"-",
            b"a",
            b"\xff",
            b"\xc3\xa9",
            b"\xc3",
        ]);
        vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn every_header_has_a_value_or_none(values in vec(bytes(), 1..3)) {
            for name in ["x-forwarded-for", "x-forwarded-uri", "x-original-url", "x-forwarded-host"] {
                let headers: Vec<(&str, &[u8])> = values.iter().map(|value| (name, &value[..])).collect();
                for field in ["remote_addr", "http_x_forwarded_for", "path", "host", name] {
                    let Ok(found) = value("/check", &headers, field) else { continue };
                    let found = found.unwrap_or_else(|| "none".to_owned());
                    prop_assert!(!found.is_empty() && found != "-");
                    prop_assert!(field != "remote_addr" || !found.contains(','), "{found}");
                }
            }
        }
    }
}
