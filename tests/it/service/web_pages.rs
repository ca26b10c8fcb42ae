//! Web pages: a page in a browser that reaches the service must not charge or refund counters, by `/json` or by gRPC.

use bytes::Bytes;
use serde_json::json;
use tokio::net::TcpStream;

use crate::support::http::{self, Response, connect, exchange};
use crate::support::process::Ratelimitd;

const RULES: &str = "
domain: web
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2 } }]
";

const REFUSED: &str = "/json does not answer web pages (Origin or Sec-Fetch-Site header)\n";

/// A decision call as a page can send it without a CORS preflight.
fn post(service: &Ratelimitd, headers: &[&str]) -> Response {
    let entries = json!([{"key": "user", "value": "ann"}]);
    let body = json!({"domain": "web", "descriptors": [{"entries": entries, "isNegativeHits": true}]});
    let mut lines = vec!["POST /json HTTP/1.1", "host: localhost:8080", "content-type: text/plain"];
    lines.extend(headers);
    exchange(connect(service.http_port()).expect("a connection"), &lines, &body.to_string())
        .expect("an answer")
}

#[test]
fn a_web_page_cannot_call_json() {
    let service = Ratelimitd::start(RULES);
    let pages: [&[&str]; 6] = [
        &["origin: http://evil.example", "sec-fetch-site: cross-site"],
        &["origin: http://evil.example"], // a browser that sends no Sec-Fetch-Site: not on loopback, no TLS
        &["origin: null"],
        &["sec-fetch-site: cross-site"],
        &["sec-fetch-site: same-site"],
        &["origin: http://localhost:8080", "sec-fetch-site: same-origin"], // DNS rebinding
    ];
    for headers in pages {
        let answer = post(&service, headers);
        assert_eq!((answer.status, answer.body.as_str()), (403, REFUSED), "{headers:?}");
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let counted = r#"ratelimitd_request_errors_total{kind="invalid",transport="http"} 6"#;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    assert!(metrics.contains("ratelimitd_memory_keys 0"), "no counter is touched: {metrics}");
}

#[test]
fn a_program_can_call_json_with_any_content_type() {
    let service = Ratelimitd::start(RULES);
    for headers in [&[][..], &["sec-fetch-site: none"], &["sec-fetch-mode: cors"]] {
        let answer = post(&service, headers);
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.body);
    }
}

#[test]
fn a_web_page_may_read_health_pages() {
    let service = Ratelimitd::start(RULES);
    for path in ["/livez", "/readyz", "/healthcheck", "/metrics"] {
        let answer = http::get(service.http_port(), path, &[("origin", "http://status.example")]);
        assert_eq!(answer.expect("an answer").status, 200, "{path}");
    }
}

/// Names and values.
type Headers<'h> = &'h [(&'h str, &'h str)];

/// The status of a call that a page sends to the gRPC port, as a browser does over TLS. It takes one unit.
async fn call(service: &Ratelimitd, method: &str, headers: Headers<'_>) -> u16 {
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let request = ::http::Request::builder().method(method).uri(format!("https://localhost{path}"));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let stream = TcpStream::connect(("127.0.0.1", service.grpc_port())).await.expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    let mut client = client.ready().await.expect("an open connection");
    let message = b"\0\0\0\0\x14\x0a\x03web\x12\x0d\x0a\x0b\x0a\x04user\x12\x03ann";
    let answered = async {
        let (answer, mut body) = client.send_request(request.body(()).expect("valid"), false).expect("open");
        // The service may have refused the call before it has the message.
        let _ = body.send_data(Bytes::from_static(message), true);
        answer.await.expect("an answer").status().as_u16()
    };
    tokio::select! {
        status = answered => status,
        ended = connection => panic!("the connection ended: {ended:?}"),
    }
}

#[tokio::test]
async fn a_web_page_cannot_call_grpc() {
    let service = Ratelimitd::start(RULES);
    let grpc = ("content-type", "application/grpc");
    let origin = ("origin", "https://evil.example");
    let table: [(&str, Headers<'_>, u16); 6] = [
        ("POST", &[("content-type", "text/plain"), origin, ("sec-fetch-site", "cross-site")], 415),
        ("POST", &[("content-type", "application/x-www-form-urlencoded")], 415),
        ("OPTIONS", &[origin, ("access-control-request-headers", "content-type")], 405),
        ("GET", &[("sec-fetch-site", "cross-site")], 405),
        ("POST", &[grpc, origin], 403),
        ("POST", &[grpc, ("sec-fetch-site", "same-origin")], 403),
    ];
    for (method, headers, status) in table {
        assert_eq!(call(&service, method, headers).await, status, "{method} {headers:?}");
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let counted = r#"ratelimitd_request_errors_total{kind="invalid",transport="grpc"} 6"#;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    assert!(metrics.contains("ratelimitd_memory_keys 0"), "no counter is touched: {metrics}");
    assert_eq!(call(&service, "POST", &[grpc, ("te", "trailers")]).await, 200);
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    assert!(metrics.contains("ratelimitd_memory_keys 1"), "a program is answered: {metrics}");
}
