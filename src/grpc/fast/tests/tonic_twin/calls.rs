//! Single calls, well-formed and not.

use http::Method;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::super::tonic_twin::*;

pub(super) const CHECK: &str = "/grpc.health.v1.Health/Check";
pub(super) const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const REFLECTION_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

pub(super) const OK: Seen = both("200 application/grpc, 11 bytes 16, trailers 0");
const FLAG_ALONE: &str =
    "only the flag of a message says that it is compressed; all other encodings are refused alike";
const ONE_MESSAGE: &str = "a call asks one question";
const TIMEOUT: &str = "200 application/grpc, headers 1";
const LATE: &str = "DEADLINE_EXCEEDED is the status for it; tonic says CANCELLED";
const STREAM_IN_TIME: &str = "a client that watches sends its question and ends its side within 15 s";
const OTHER_ROUTER: &str = "the method is unknown to the router here, and to the generated code there";

pub(super) struct TwinCaller {
    pub(super) name: &'static str,
    pub(super) deciding: Deciding,
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) frames: Vec<Bytes>,
    pub(super) trailers: bool,
    /// `true` if the client ends its side of the call.
    pub(super) ends: bool,
    pub(super) window: u32,
    pub(super) seen: Seen,
}

pub(super) fn caller(name: &'static str, seen: Seen) -> TwinCaller {
    TwinCaller {
        name,
        deciding: Deciding::Answers,
        method: Method::POST,
        path: PATH,
        headers: headers(&[("content-type", "application/grpc"), ("te", "trailers")]),
        frames: vec![valid_request()],
        trailers: false,
        ends: true,
        window: WINDOW_BYTES,
        seen,
    }
}

pub(super) fn headers(list: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    list.iter().map(|&(name, value)| (name, value.to_owned())).collect()
}

pub(super) fn with_header(name: &'static str, value: &str) -> Vec<(&'static str, String)> {
    let mut all = headers(&[("content-type", "application/grpc"), ("te", "trailers")]);
    all.push((name, value.to_owned()));
    all
}

fn good_callers() -> Vec<TwinCaller> {
    let envoy = [
        ("te", "trailers"),
        ("grpc-timeout", "20m"),
        ("content-type", "application/grpc"),
        ("x-envoy-internal", "true"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-envoy-expected-rq-timeout-ms", "20"),
    ];
    let length = valid_request().len().to_string();
    vec![
        caller("the usual call", OK),
        TwinCaller { headers: headers(&envoy), ..caller("the headers of Envoy", OK) },
        TwinCaller {
            headers: headers(&[("content-type", "application/grpc+proto"), ("te", "trailers")]),
            ..caller("a content type with a suffix", OK)
        },
        TwinCaller { headers: headers(&[("content-type", "application/grpc")]), ..caller("no `te`", OK) },
        TwinCaller {
            headers: with_header("grpc-encoding", "identity"),
            ..caller("no compression, said", OK)
        },
        TwinCaller {
            headers: with_header("content-length", &length),
            ..caller("a right content length", OK)
        },
        TwinCaller { headers: with_header("x-data-bin", "AAEC"), ..caller("a header with bytes", OK) },
        TwinCaller {
            path: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit?a=b",
            ..caller("a query", OK)
        },
        TwinCaller {
            frames: valid_request().chunks(1).map(Bytes::copy_from_slice).collect(),
            ..caller("a message in single bytes", OK)
        },
        TwinCaller { frames: vec![valid_request(), Bytes::new()], ..caller("an empty last frame", OK) },
        TwinCaller { frames: vec![Bytes::new(), valid_request()], ..caller("an empty first frame", OK) },
        TwinCaller { trailers: true, ..caller("trailers of the client", OK) },
        TwinCaller { window: 4, ..caller("a window of four bytes", OK) },
        TwinCaller { window: 1, ..caller("a window of one byte", OK) },
        TwinCaller {
            frames: vec![charged_request()],
            ..caller("a request with a limit", both("200 application/grpc, 23 bytes 31, trailers 0"))
        },
    ]
}

fn bad_callers() -> Vec<TwinCaller> {
    let invalid = || both("200 application/grpc, headers 3");
    let compressed = "200 application/grpc, grpc-accept-encoding identity, headers 12";
    let uncompressed_only = || differs(compressed, "200 application/grpc, headers 3", FLAG_ALONE);
    let several = || differs("200 application/grpc, headers 3", OK.ours, ONE_MESSAGE);
    vec![
        TwinCaller {
            headers: with_header("grpc-encoding", "gzip"),
            ..caller("an encoding and no use of it", differs(OK.ours, compressed, FLAG_ALONE))
        },
        TwinCaller {
            headers: with_header("grpc-encoding", "gzip"),
            frames: vec![framed(1, b"x")],
            ..caller("a compressed message", both(compressed))
        },
        TwinCaller {
            frames: vec![framed(1, b"x")],
            ..caller("the flag for compression alone", uncompressed_only())
        },
        TwinCaller {
            frames: vec![framed(2, b"x")],
            ..caller("a flag that does not exist", uncompressed_only())
        },
        TwinCaller {
            frames: vec![framed(0, &[0; MAX_MESSAGE_BYTES + 1])],
            ..caller("a message that is too large", both("200 application/grpc, headers 11"))
        },
        TwinCaller {
            frames: vec![Bytes::from_static(b"\0\xc0\0\0\0abc")],
            ends: false,
            ..caller("three gigabytes, stated", both("200 application/grpc, headers 11"))
        },
        TwinCaller { frames: vec![], ..caller("no message", invalid()) },
        TwinCaller { frames: vec![Bytes::from_static(b"\0\0")], ..caller("half a prefix", invalid()) },
        TwinCaller { frames: vec![valid_request().split_to(9)], ..caller("half a message", invalid()) },
        TwinCaller { frames: vec![framed(0, b"\xff\xff")], ..caller("no protobuf", invalid()) },
        TwinCaller {
            frames: vec![framed(0, b"\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff")],
            ..caller("no UTF-8", OK)
        },
        TwinCaller {
            frames: vec![framed(0, b"")],
            ..caller("an empty message", both("200 application/grpc, headers 3"))
        },
        TwinCaller {
            frames: vec![[valid_request(), valid_request()].concat().into()],
            ..caller("two messages in a frame", several())
        },
        TwinCaller { frames: vec![valid_request(), valid_request()], ..caller("two messages", several()) },
        TwinCaller {
            headers: with_header("content-length", "3"),
            ..caller("a wrong content length", both("no answer: Some(PROTOCOL_ERROR)"))
        },
        TwinCaller {
            headers: with_header("x-long", &"x".repeat(MAX_HEADER_LIST_BYTES)),
            ..caller("a long header", both("200 application/grpc, headers 11"))
        },
        TwinCaller {
            headers: with_header("x-long", &"x".repeat(MAX_READ_HEADER_BYTES as usize)),
            ..caller("a header that HTTP/2 does not read", both("431 -, headers -"))
        },
    ]
}

fn slow_callers() -> Vec<TwinCaller> {
    vec![
        TwinCaller {
            frames: vec![valid_request().split_to(9)],
            ends: false,
            ..caller(
                "a message that does not arrive",
                differs(
                    "200 application/grpc, headers 4",
                    TIMEOUT,
                    "an unfinished call holds memory, and ends after 2 s",
                ),
            )
        },
        TwinCaller {
            frames: vec![],
            ends: false,
            ..caller(
                "only headers",
                differs(
                    "200 application/grpc, headers 4",
                    TIMEOUT,
                    "an unfinished call holds memory, and ends after 2 s",
                ),
            )
        },
        TwinCaller {
            window: 0,
            ..caller(
                "a window that stays closed",
                differs(
                    "200 application/grpc, then Some(CANCEL)",
                    "nothing",
                    "an answer that is not taken holds memory",
                ),
            )
        },
        TwinCaller {
            deciding: Deciding::Hangs,
            frames: vec![charged_request()],
            ..caller("a store that hangs", differs("200 application/grpc, headers 4", TIMEOUT, LATE))
        },
        TwinCaller {
            deciding: Deciding::Hangs,
            headers: with_header("grpc-timeout", "100m"),
            frames: vec![charged_request()],
            ..caller(
                "a store that hangs, and a deadline",
                differs("200 application/grpc, headers 4", TIMEOUT, LATE),
            )
        },
        TwinCaller {
            deciding: Deciding::Panics,
            frames: vec![charged_request()],
            ..caller("a decision that panics", both("200 application/grpc, headers 13"))
        },
    ]
}

/// Calls of tonic's own services, and of unknown ones.
fn other_callers() -> Vec<TwinCaller> {
    let list = |host: &str| {
        let asked = MessageRequest::ListServices(String::new());
        let request = ServerReflectionRequest { host: host.to_owned(), message_request: Some(asked) };
        vec![framed(0, &request.encode_to_vec())]
    };
    let unimplemented = "200 application/grpc, content-length 0, headers 12";
    let other = |name, path, frames, seen| TwinCaller { path, frames, ..caller(name, seen) };
    let health = |name, frames, seen| other(name, CHECK, frames, both(seen));
    vec![
        other(
            "an unknown method",
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldNot",
            vec![],
            differs(unimplemented, "200 application/grpc, headers 12", OTHER_ROUTER),
        ),
        other(
            "an unknown service",
            "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit",
            vec![],
            both(unimplemented),
        ),
        other("the root", "/", vec![], both(unimplemented)),
        health("health", vec![framed(0, b"")], "200 application/grpc, 7 bytes 0b, trailers 0"),
        health(
            "health in pieces",
            framed(0, b"").chunks(2).map(Bytes::copy_from_slice).collect(),
            "200 application/grpc, 7 bytes 0b, trailers 0",
        ),
        health(
            "health of an unknown service",
            vec![framed(0, b"\x0a\x01x")],
            "200 application/grpc, headers 5",
        ),
        health("a long request for health", vec![framed(0, &[0; 4_097])], "200 application/grpc, headers 11"),
        health("no request for health", vec![], "200 application/grpc, headers 13"),
        other("reflection", REFLECTION, list("h"), both("200 application/grpc, 179 bytes 53, trailers 0")),
        other(
            "reflection, the older version",
            REFLECTION_ALPHA,
            list("h"),
            both("200 application/grpc, 184 bytes 39, trailers 0"),
        ),
        TwinCaller {
            window: 7,
            ..other(
                "reflection with a window of seven bytes",
                REFLECTION,
                list("h"),
                both("200 application/grpc, 179 bytes 53, trailers 0"),
            )
        },
        other("reflection without a question", REFLECTION, vec![], both("200 application/grpc, trailers 0")),
        TwinCaller {
            ends: false,
            ..other(
                "a watch of health",
                WATCH,
                vec![framed(0, b"")],
                differs("no answer: Some(CANCEL)", TIMEOUT, STREAM_IN_TIME),
            )
        },
    ]
}

async fn play(twin: Twin, caller: &TwinCaller) -> String {
    let mut client =
        client_of(twin.connect(caller.deciding), caller.window).await.ready().await.expect("open");
    let mut request = Request::builder().method(&caller.method).uri(format!("http://server{}", caller.path));
    for (name, value) in &caller.headers {
        request = request.header(*name, value);
    }
    let request = request.body(()).expect("a valid request");
    let (response, mut sent) = client.send_request(request, false).expect("an open connection");
    // A refused call does not accept a frame.
    for frame in &caller.frames {
        let _ = sent.send_data(frame.clone(), false);
    }
    if caller.trailers {
        let _ = sent.send_trailers(HeaderMap::from_iter([(
            http::HeaderName::from_static("x-checksum"),
            http::HeaderValue::from_static("7"),
        )]));
    } else if caller.ends {
        let _ = sent.send_data(Bytes::new(), true);
    }
    outcome(response).await
}

pub(super) async fn compare(callers: Vec<TwinCaller>) {
    let mut mismatches = Vec::new();
    for caller in callers {
        let (ours, tonic) = (play(Twin::Ours, &caller).await, play(Twin::Tonic, &caller).await);
        mismatches.extend(caller.seen.mismatch(caller.name, &ours, &tonic));
    }
    report(&mismatches);
}

#[tokio::test(start_paused = true)]
async fn good_calls_are_answered_as_by_tonic() {
    compare(good_callers()).await;
}

#[tokio::test(start_paused = true)]
async fn bad_calls_are_refused_as_by_tonic() {
    compare(bad_callers()).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_end_earlier_than_with_tonic() {
    compare(slow_callers()).await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_other_services_are_answered_as_by_tonic() {
    compare(other_callers()).await;
}
