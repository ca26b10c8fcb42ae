//! Requests that are not gRPC calls, and those that a browser sends for a web page.

use http::Method;

use super::super::tonic_twin::*;
use super::calls::{CHECK, OK, REFLECTION, TwinCaller, caller, compare, headers, with_header};

fn foreign_callers() -> Vec<TwinCaller> {
    let typed = |content_type: &str| headers(&[("content-type", content_type)]);
    let method = || both("405 application/grpc, headers 3");
    let media = || both("415 application/grpc, headers 3");
    let page = || both("403 application/grpc, headers 3");
    let check = || TwinCaller { path: CHECK, frames: vec![framed(0, b"")], ..caller("", OK) };
    vec![
        TwinCaller { headers: headers(&[]), ..caller("no content type", media()) },
        TwinCaller { headers: typed("text/plain"), ..caller("another content type", media()) },
        TwinCaller { headers: typed("application/grpc-web+proto"), ..caller("gRPC-Web", media()) },
        TwinCaller { method: Method::GET, ..caller("GET", method()) },
        TwinCaller { method: Method::PUT, ..caller("PUT", method()) },
        TwinCaller { method: Method::OPTIONS, ..caller("OPTIONS", method()) },
        TwinCaller { method: Method::HEAD, ..caller("HEAD", method()) },
        TwinCaller { headers: with_header("origin", "https://a.example"), ..caller("an origin", page()) },
        TwinCaller {
            headers: with_header("sec-fetch-site", "cross-site"),
            ..caller("a browser without an origin", page())
        },
        TwinCaller { headers: with_header("sec-fetch-site", "none"), ..caller("a user of a browser", OK) },
        TwinCaller { name: "GET of health", method: Method::GET, seen: method(), ..check() },
        TwinCaller {
            name: "health for a form of a web page",
            headers: typed("text/plain"),
            seen: media(),
            ..check()
        },
        TwinCaller {
            path: REFLECTION,
            frames: vec![],
            headers: with_header("origin", "https://a.example"),
            ..caller("reflection for a web page", page())
        },
    ]
}

#[tokio::test(start_paused = true)]
async fn requests_that_a_web_page_can_make_are_refused() {
    compare(foreign_callers()).await;
}
