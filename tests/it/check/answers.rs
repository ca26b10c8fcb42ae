//! What each call is answered, over HTTP.

use std::io::{Read as _, Write as _};

use super::{Checked, RULES};
use crate::support::http;
use crate::support::process::Ratelimitd;

const PER_CLIENT: &str = "domain: edge\ndescriptors:\n  - - { key: client, from: remote_addr }\n";
const PER_PATH: &str = "domain: edge\ndescriptors:\n  - - { key: path, from: path, strip: query, \
                        template: [\"/users/*\"] }\n    - { key: method, from: method }\n";

#[test]
fn without_a_map_there_is_no_check() {
    let service = Ratelimitd::start(RULES);
    for path in ["/check", "/check/", "/check/a"] {
        let answer = http::get(service.http_port(), path, &[("x-forwarded-for", "192.0.2.1")]);
        assert_eq!(answer.expect("an answer").status, 404, "{path}");
    }
}

#[test]
fn a_client_is_admitted_until_its_limit_is_used_up() {
    let checked = Checked::start(PER_CLIENT);
    let client = [("x-forwarded-for", "forged, 192.0.2.1")];
    for _ in 0..5 {
        let answer = checked.get("/check", &client);
        assert_eq!((answer.status, answer.body.as_str(), answer.header("retry-after")), (200, "", None));
    }
    let denied = checked.get("/check", &client);
    assert_eq!((denied.status, denied.body.as_str()), (429, ""));
    let wait = denied.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
    assert!(wait.is_some_and(|wait| (1..=366 * 86_400).contains(&wait)), "{denied:?}");
    assert_eq!(checked.get("/check", &[("x-forwarded-for", "192.0.2.2")]).status, 200, "another client");
    checked.assert_metric(r#"ratelimitd_requests_total{result="denied"} 1"#);
    checked.assert_metric(r#"ratelimitd_requests_total{result="ok"} 6"#);
    checked.assert_metric(r#"ratelimitd_request_duration_seconds_count{transport="http"} 7"#);
}

#[test]
fn a_denial_has_the_headers_of_the_settings_and_the_chosen_status() {
    let checked = Checked::start_with(PER_CLIENT, |plan| {
        plan.set("server.http.check.denied_status", "403").set("response.headers", "ietf")
    });
    let client = [("x-original-uri", "/a"), ("x-forwarded-for", "192.0.2.1")];
    let admitted = checked.get("/check", &client);
    assert_eq!(
        (admitted.status, admitted.header("ratelimit-policy")),
        (200, Some("\"per-client\";q=5;w=31536000"))
    );
    assert_eq!(checked.statuses(5, "/check", &client), [200, 200, 200, 200, 403]);
    let denied = checked.get("/check", &client);
    assert!(
        denied.header("ratelimit").is_some_and(|text| text.starts_with("\"per-client\";r=0;t=")),
        "{denied:?}"
    );
    assert!(denied.header("retry-after").is_some(), "{denied:?}");
}

#[test]
fn a_denial_tells_the_client_what_is_over_if_the_settings_say_so() {
    let checked = Checked::start_with(PER_CLIENT, |plan| {
        plan.set("server.http.check.denied_status", "403").set("response.problem", true)
    });
    let client = [("x-forwarded-for", "192.0.2.1")];
    let admitted = checked.get("/check", &client);
    assert_eq!((admitted.status, admitted.body.as_str(), admitted.header("content-type")), (200, "", None));
    assert_eq!(checked.statuses(4, "/check", &client), [200; 4]);
    let denied = checked.get("/check", &client);
    assert_eq!((denied.status, denied.header("content-type")), (403, Some("application/problem+json")));
    let wait = denied.header("retry-after").expect("a wait");
    let expected = format!(
        "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Quota Exceeded\",\
         \"status\":403,\"detail\":\"over 5 per year; more is available in {wait} s\",\
         \"violated-policies\":[\"per-client\"]}}"
    );
    assert_eq!(denied.body, expected);
}

#[test]
fn method_and_path_come_from_the_headers_of_the_proxy() {
    let checked = Checked::start(PER_PATH);
    let of = |method, uri| [("x-forwarded-method", method), ("x-forwarded-uri", uri)];
    assert_eq!(checked.statuses(2, "/check", &of("POST", "/users/1?a")), [200, 200]);
    assert_eq!(checked.statuses(1, "/check", &of("POST", "/users/2")), [429], "the same template");
    assert_eq!(checked.statuses(1, "/check", &of("PUT", "/users/1")), [200], "another method");
    let original = [("x-original-method", "POST"), ("x-original-url", "https://example.com/users/3?b")];
    assert_eq!(checked.statuses(1, "/check", &original), [429], "the headers of another proxy");
}

#[test]
fn a_path_below_check_is_the_client_s_own() {
    let checked = Checked::start(PER_PATH);
    // A client behind Envoy may send such headers.
    let forged = [("x-forwarded-for", "192.0.2.1"), ("x-forwarded-uri", "/free")];
    assert_eq!(checked.statuses(3, "/check/users/1?a=b", &forged), [200, 200, 429]);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let lines =
            [format!("{method} /check/users/2 HTTP/1.1"), "host: h".into(), "x-forwarded-for: ::1".into()];
        let answered: Vec<u16> = (0..3)
            .map(|_| {
                http::exchange(http::connect(checked.port()).expect("open"), &lines, "").expect("an answer")
            })
            .map(|answer| answer.status)
            .collect();
        assert_eq!(answered, [200, 200, 429], "{method}");
    }
}

#[test]
fn a_head_request_is_answered_without_a_body_and_the_connection_stays_open() {
    let checked = Checked::start(PER_CLIENT);
    let mut client = http::connect(checked.port()).expect("a connection");
    for expected in ["200", "200", "200", "200", "200", "429", "429"] {
        client
            .write_all(b"HEAD /check HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 192.0.2.1\r\n\r\n")
            .expect("open");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("the head of an answer");
            head.extend(byte);
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{head}");
    }
}

#[test]
fn a_request_without_a_descriptor_is_admitted_and_counted() {
    let map = format!("{PER_CLIENT}keep: path != /health\n");
    let checked = Checked::start(&map);
    let kept_out = [("x-forwarded-uri", "/health"), ("x-forwarded-for", "192.0.2.1")];
    assert_eq!(checked.statuses(6, "/check", &kept_out), [200; 6], "`keep` does not hold");
    assert_eq!(checked.statuses(6, "/check", &[("x-forwarded-uri", "/a")]), [200; 6], "no address");
    checked.assert_metric(r#"ratelimitd_requests_total{result="ok"} 12"#);
    checked.assert_metric("ratelimitd_unlimited_requests_total 12");
    checked.assert_metric("ratelimitd_memory_keys 0");
}

/// A service that does not read the path as the map does could serve what is limited under a name that is not.
#[test]
fn another_spelling_of_a_path_lifts_no_limit() {
    let map = format!("{PER_CLIENT}normalize: path\nkeep: path != /health\n");
    let checked = Checked::start(&map);
    let call =
        |path: &str| checked.get("/check", &[("x-forwarded-uri", path), ("x-forwarded-for", "192.0.2.1")]);
    assert_eq!([(); 6].map(|()| call("/files/x").status), [200, 200, 200, 200, 200, 429]);
    for path in ["/%68ealth", "//health", "/health;a", "/a/;/health"] {
        assert_eq!(call(path).status, 429, "{path}");
    }
    for path in ["/files/../health", "/files/%2e%2E/health", "/files/..;a/health", "/health/..%2ffiles"] {
        let answer = call(path);
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.body.contains("the path has a segment '.' or '..'"), "{}", answer.body);
    }
    assert_eq!(call("/health?a").status, 200);
    checked.assert_metric("ratelimitd_unlimited_requests_total 1");
    // As long as the headers may be: a value is never longer than what the client sent.
    assert_eq!(call(&format!("/{}", "%".repeat(30 << 10))).status, 429);
}

#[test]
fn a_client_of_ipv6_is_its_network_and_a_request_without_an_address_has_a_limit() {
    let checked =
        Checked::start(&PER_CLIENT.replace("remote_addr", "remote_addr, prefix: 64, default: unknown"));
    let of = |address: &str| checked.get("/check", &[("x-forwarded-for", address)]).status;
    let network = (1..=6).map(|host| of(&format!("[2001:DB8:0:1::{host}]:80{host}")));
    assert_eq!(network.collect::<Vec<_>>(), [200, 200, 200, 200, 200, 429]);
    assert_eq!(of("2001:db8:0:2::1"), 200, "another network");
    let spellings =
        ["192.0.2.1", "192.0.2.1:80", "::ffff:192.0.2.1", "[::ffff:c000:201]:1", "192.0.2.1", "192.0.2.1"];
    assert_eq!(spellings.map(of), [200, 200, 200, 200, 200, 429]);
    let unknown = ["-", "forged", "010.0.0.1", ",", "1,", "unknown"];
    assert_eq!(unknown.map(of), [200, 200, 200, 200, 200, 429]);
    checked.assert_metric("ratelimitd_unlimited_requests_total 0");
}

#[test]
fn a_call_that_no_proxy_has_sent_is_refused() {
    let checked = Checked::start(PER_CLIENT);
    let pages: [&[(&str, &str)]; 3] = [
        &[],
        &[("origin", "https://evil.example"), ("access-control-request-headers", "x-forwarded-for")],
        &[("sec-fetch-site", "cross-site")],
    ];
    for path in ["/check", "/check/a"] {
        for headers in pages {
            let answer = checked.get(path, headers);
            assert_eq!(answer.status, 400, "{headers:?}");
            assert!(answer.body.contains("X-Forwarded-*"), "{}", answer.body);
            assert_eq!(answer.header("access-control-allow-headers"), None);
        }
    }
    checked.assert_metric(r#"ratelimitd_request_errors_total{kind="invalid",transport="http"} 6"#);
    checked.assert_metric("ratelimitd_memory_keys 0");
    // The headers of a browser that a proxy passes on.
    let passed_on = [("origin", "https://example.com"), ("x-forwarded-for", "192.0.2.1")];
    assert_eq!(checked.get("/check", &passed_on).status, 200);
}

#[test]
fn an_invalid_request_is_an_error_or_a_denial_as_the_settings_say() {
    let map = format!("{PER_PATH}cost: {{ from: x-cost }}\n");
    let checked = Checked::start(&map);
    let contradiction = [("x-original-uri", "/limited"), ("x-forwarded-uri", "/free")];
    let answer = checked.get("/check", &contradiction);
    assert_eq!(answer.status, 400);
    assert!(
        answer.body.contains("x-forwarded-uri and x-original-uri contradict each other"),
        "{}",
        answer.body
    );
    let answer = checked.get("/check", &[("x-forwarded-uri", "/a"), ("x-cost", "hunter2")]);
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (400, "Bad Request: cost: expected a number, found \"hunter2\"\n")
    );
    let costly = [("x-forwarded-uri", "/a"), ("x-cost", "2")];
    assert_eq!(checked.statuses(2, "/check", &costly), [200, 429]);
    checked.assert_metric(r#"ratelimitd_request_errors_total{kind="invalid",transport="http"} 2"#);
    assert!(!checked.service.log().contains("hunter2"), "the log quotes no value of a request");

    let denying = Checked::start_with(&map, |plan| plan.set("server.on_invalid", "deny"));
    assert_eq!(denying.get("/check", &contradiction).status, 429);
}

#[test]
fn a_process_in_shadow_mode_denies_nothing() {
    let checked = Checked::start_with(PER_CLIENT, |plan| plan.set("shadow_mode", true));
    assert_eq!(checked.statuses(7, "/check", &[("x-forwarded-for", "192.0.2.1")]), [200; 7]);
}

#[test]
fn a_limit_that_announces_tells_the_upstream_in_the_headers_of_an_admission() {
    let rules = "domain: edge\ndescriptors:\n  - key: client\n    \
                 rate_limit: { name: soft, unit: year, requests_per_unit: 1, on_over: announce }\n";
    let checked = Checked::start_with(PER_CLIENT, |plan| plan.rule_file("rules.yaml", rules));
    let announced = [(); 2].map(|()| {
        let answer = checked.get("/check", &[("x-forwarded-for", "192.0.2.1")]);
        (answer.status, answer.header("x-ratelimit-announce").map(str::to_owned))
    });
    assert_eq!(announced, [(200, None), (200, Some("soft;over".to_owned()))]);
}

#[test]
fn a_body_is_not_read() {
    let checked = Checked::start(PER_CLIENT);
    let mut client = http::connect(checked.port()).expect("a connection");
    // The body never arrives.
    let head =
        "POST /check HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 192.0.2.1\r\ncontent-length: 1000000\r\n\r\n";
    client.write_all(head.as_bytes()).expect("open");
    let mut answer = [0; 15];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}
