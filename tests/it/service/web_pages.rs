//! `/json` and web pages: a page in a browser that reaches the service must not charge or refund counters.

use serde_json::json;

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
