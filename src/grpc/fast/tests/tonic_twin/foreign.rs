//! Requests that are no calls of gRPC, and those that a browser sends for a web page.

use http::Method;

use super::super::tonic_twin::*;
use super::calls::{CHECK, OK, REFLECTION, TwinCaller, caller, compare, headers, with_header};

const ASKED_FIRST: &str =
    "gRPC over HTTP/2 says so, and a browser sends such a request of a page without asking first";
const AS_ON_JSON: &str = "no port answers the requests of web pages";

fn foreign_callers() -> Vec<TwinCaller> {
    let typed = |content_type: &str| headers(&[("content-type", content_type)]);
    let method = || differs("405 application/grpc, headers 3", OK.ours, ASKED_FIRST);
    let media = || differs("415 application/grpc, headers 3", OK.ours, ASKED_FIRST);
    let page = || differs("403 application/grpc, headers 3", OK.ours, AS_ON_JSON);
    let check = || TwinCaller { path: CHECK, frames: vec![framed(0, b"")], ..caller("", OK) };
    let health = "200 application/grpc, 7 bytes 0b, trailers 0";
    let of_head = "200 application/grpc, then Some(PROTOCOL_ERROR)";
    vec![
        TwinCaller { headers: headers(&[]), ..caller("no content type", media()) },
        TwinCaller { headers: typed("text/plain"), ..caller("another content type", media()) },
        TwinCaller { headers: typed("application/grpc-web+proto"), ..caller("gRPC-Web", media()) },
        TwinCaller { method: Method::GET, ..caller("GET", method()) },
        TwinCaller { method: Method::PUT, ..caller("PUT", method()) },
        TwinCaller { method: Method::OPTIONS, ..caller("OPTIONS", method()) },
        TwinCaller {
            method: Method::HEAD,
            ..caller("HEAD", differs("405 application/grpc, headers 3", of_head, ASKED_FIRST))
        },
        TwinCaller { headers: with_header("origin", "https://a.example"), ..caller("an origin", page()) },
        TwinCaller {
            headers: with_header("sec-fetch-site", "cross-site"),
            ..caller("a browser without an origin", page())
        },
        TwinCaller { headers: with_header("sec-fetch-site", "none"), ..caller("a user of a browser", OK) },
        TwinCaller {
            name: "GET of health",
            method: Method::GET,
            seen: differs("405 application/grpc, headers 3", health, ASKED_FIRST),
            ..check()
        },
        TwinCaller {
            name: "health for a form of a web page",
            headers: typed("text/plain"),
            seen: differs("415 application/grpc, headers 3", health, ASKED_FIRST),
            ..check()
        },
        TwinCaller {
            path: REFLECTION,
            frames: vec![],
            headers: with_header("origin", "https://a.example"),
            ..caller(
                "reflection for a web page",
                differs("403 application/grpc, headers 3", "200 application/grpc, trailers 0", AS_ON_JSON),
            )
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn requests_that_a_web_page_can_make_are_refused() {
    compare(foreign_callers()).await;
}
