//! Which requests the admin port answers, over raw HTTP.

use serde_json::json;

use crate::support::http::{Response, connect, exchange};
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: web
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1 } }]
";

const NO_HOST: &str = "a request to the admin port needs exactly one valid Host header\n";
const FOREIGN_HOST: &str = "the Host of a request to the admin port must be localhost, an IP address, or one of server.admin.hosts\n";
const FOREIGN_PAGE: &str =
    "the admin port does not answer web pages of other origins (Origin or Sec-Fetch-Site header)\n";
const NOT_JSON: &str = "a POST to the admin port needs the header Content-Type: application/json\n";

fn request_body() -> String {
    json!({"domain": "web", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}).to_string()
}

/// Sends a request with exactly these lines to the admin port; a POST has a body.
fn send(service: &Ratelimitd, lines: &[&str]) -> Response {
    let body = if lines[0].starts_with("POST") { request_body() } else { String::new() };
    exchange(connect(service.admin_port()).expect("a connection"), lines, &body).expect("an answer")
}

/// Uses the counter of user=ann up, and returns whether it was used up before.
fn is_used_up(service: &Ratelimitd) -> bool {
    let lines = ["POST /json HTTP/1.1", "host: localhost"];
    let stream = connect(service.http_port()).expect("a connection");
    exchange(stream, &lines, &request_body()).expect("an answer").status == 429
}

fn check(service: &Ratelimitd, table: &[(&[&str], u16, &str)]) {
    for (lines, status, body) in table {
        let answer = send(service, lines);
        assert_eq!(answer.status, *status, "{lines:?}: {}", answer.body);
        assert!(answer.body.contains(body), "{lines:?}: {}", answer.body);
    }
}

#[test]
fn no_web_page_resets_a_counter() {
    const RESET: &str = "POST /counters/reset HTTP/1.1";
    const JSON: &str = "content-type: application/json";
    let service = Ratelimitd::start(RULES);
    assert!(!is_used_up(&service));
    let table: [(&[&str], u16, &str); 14] = [
        // DNS rebinding: the page's own name points to this machine.
        (&[RESET, "host: evil.example", JSON], 421, FOREIGN_HOST),
        (&[RESET, "host: evil.example:6070", "origin: http://evil.example:6070", JSON], 421, FOREIGN_HOST),
        (&["POST http://evil.example/counters/reset HTTP/1.1", "host: localhost", JSON], 421, FOREIGN_HOST),
        // A page of another origin, in a browser on this machine.
        (&[RESET, "host: localhost:6070", "origin: http://evil.example", JSON], 403, FOREIGN_PAGE),
        (&[RESET, "host: localhost:6070", "origin: null", JSON], 403, FOREIGN_PAGE),
        (&[RESET, "host: localhost:6070", "origin: http://localhost:3000", JSON], 403, FOREIGN_PAGE),
        (&[RESET, "host: localhost:6070", "sec-fetch-site: cross-site", JSON], 403, FOREIGN_PAGE),
        (&[RESET, "host: localhost:6070", "sec-fetch-site: same-site", JSON], 403, FOREIGN_PAGE),
        (
            &["OPTIONS /counters/reset HTTP/1.1", "host: localhost", "origin: http://evil.example"],
            403,
            FOREIGN_PAGE,
        ),
        // The content types that a page may send without a CORS preflight.
        (&[RESET, "host: localhost"], 415, NOT_JSON),
        (&[RESET, "host: localhost", "content-type: text/plain"], 415, NOT_JSON),
        (&[RESET, "host: localhost", "content-type: application/x-www-form-urlencoded"], 415, NOT_JSON),
        (&[RESET, "host: localhost", "content-type: multipart/form-data; boundary=x"], 415, NOT_JSON),
        (&[RESET, "host: localhost", JSON, "content-type: text/plain"], 415, NOT_JSON),
    ];
    check(&service, &table);
    assert!(is_used_up(&service), "no refused request has reset the counter");
    check(&service, &[(&[RESET, "host: localhost", JSON], 200, "\"had_units\": true")]);
    assert!(!is_used_up(&service));
}

#[test]
fn no_web_page_reads_the_rules() {
    let service = Ratelimitd::start(RULES);
    for page in ["/", "/rules", "/rlconfig", "/store", "/build"] {
        let get = format!("GET {page} HTTP/1.1");
        let table: [(&[&str], u16, &str); 7] = [
            (&[&get, "host: evil.example"], 421, FOREIGN_HOST),
            (&[&get, "host: localhost", "sec-fetch-site: cross-site"], 403, FOREIGN_PAGE),
            (&[&get, "host: localhost", "origin: http://evil.example"], 403, FOREIGN_PAGE),
            (&[&format!("GET {page} HTTP/1.0")], 400, NO_HOST),
            (&[&get, "host: localhost", "host: evil.example"], 400, NO_HOST),
            (&[&get, "host:"], 400, NO_HOST),
            (&[&get, "host: localhost"], 200, ""),
        ];
        check(&service, &table);
    }
}

#[test]
fn operators_and_pages_of_the_admin_port_are_answered() {
    let service = Plan::new(RULES).set("server.admin.hosts", "limits.internal, Admin.Example").start();
    let host = format!("host: localhost:{}", service.admin_port());
    let own_origin = format!("origin: http://localhost:{}", service.admin_port());
    let get = "GET /rules HTTP/1.1";
    let table: [(&[&str], u16, &str); 9] = [
        (&[get, &host, "sec-fetch-site: none"], 200, "in_force"), // typed into a browser
        (&[get, &host, &own_origin, "sec-fetch-site: same-origin"], 200, "in_force"),
        (&[get, "host: 127.0.0.1:6070"], 200, "in_force"),
        (&[get, "host: [::1]:6070"], 200, "in_force"),
        (&[get, "host: 10.1.2.3"], 200, "in_force"),
        (&[get, "host: limits.internal:6070"], 200, "in_force"),
        (&[get, "host: admin.example", "origin: https://admin.example"], 200, "in_force"),
        (&[get, "host: other.internal"], 421, FOREIGN_HOST),
        (
            &["POST /counters/show HTTP/1.1", &host, "content-type: application/json; charset=utf-8"],
            200,
            "\"remaining\": 1",
        ),
    ];
    check(&service, &table);
    let stream = connect(service.http_port()).expect("a connection");
    let health = exchange(stream, &["GET /livez HTTP/1.1", "host: any.example"], "").expect("an answer");
    assert_eq!(health.status, 200, "the HTTP port answers for every host name");
}
