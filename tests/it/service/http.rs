//! The HTTP port and the admin port, with the requests of curl, Kubernetes and Prometheus.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

pub(crate) const RULES: &str = "
domain: web
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 2, name: per user } }
  - { key: slow, rate_limit: { unit: hour, requests_per_unit: 1, algorithm: gcra } }
";

pub(crate) async fn post(service: &Ratelimitd, body: impl Into<String>) -> (StatusCode, String, String) {
    let url = format!("http://127.0.0.1:{}/json", service.http_port());
    let answer = Client::new().post(url).body(body.into()).send().await.expect("an answer");
    let kind = answer.headers().get("content-type").map(|kind| kind.to_str().expect("text").to_owned());
    (answer.status(), kind.unwrap_or_default(), answer.text().await.expect("a body"))
}

pub(crate) fn json_request(key: &str) -> String {
    json!({"domain": "web", "descriptors": [{"entries": [{"key": key, "value": "v"}]}]}).to_string()
}

#[tokio::test]
async fn json_requests_are_decided_like_grpc_requests() {
    let service = Ratelimitd::start(RULES);
    let (status, kind, body) = post(&service, json_request("user")).await;
    assert_eq!((status, kind.as_str()), (StatusCode::OK, "application/json"));
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(answer["overallCode"], "OK");
    assert_eq!(answer["statuses"][0]["code"], "OK");
    assert_eq!(answer["statuses"][0]["limitRemaining"], 1);
    let limit = json!({"requestsPerUnit": 2, "unit": "YEAR", "name": "per user"});
    assert_eq!(answer["statuses"][0]["currentLimit"], limit);
    let reset = answer["statuses"][0]["durationUntilReset"].as_str().expect("a duration");
    assert!(reset.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{reset}");

    let two =
        r#"{"domain":"web","hits_addend":"2","descriptors":[{"entries":[{"key":"user","value":"v"}]}]}"#;
    let (status, kind, body) = post(&service, two).await;
    assert_eq!((status, kind.as_str()), (StatusCode::TOO_MANY_REQUESTS, "application/json"));
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        (&answer["overallCode"], &answer["statuses"][0]["code"]),
        (&json!("OVER_LIMIT"), &json!("OVER_LIMIT"))
    );
    assert_eq!(answer["statuses"][0].get("limitRemaining"), None, "zero is left out");
}

#[tokio::test]
async fn an_answer_in_json_has_the_delay_of_a_queue_with_default_settings() {
    let service = Ratelimitd::start(
        "domain: web\ndescriptors:\n  - key: queue\n    rate_limit: { unit: hour, requests_per_unit: 1, burst: 2, \
         algorithm: leaky_bucket, mode: queue }\n",
    );
    let mut delays = Vec::new();
    for _ in 0..3 {
        let (_, _, body) = post(&service, json_request("queue")).await;
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        delays.push(answer.get("dynamicMetadata").map(|metadata| metadata["delay_ms"].as_u64()));
    }
    assert_eq!(delays[0], Some(Some(0)));
    assert!(matches!(delays[1], Some(Some(3_500_000..=3_600_000))), "{delays:?}");
    assert_eq!(delays[2], None, "a denied hit does not wait");
}

#[tokio::test]
async fn invalid_json_is_a_bad_request_with_the_reason() {
    let service = Ratelimitd::start(RULES);
    // Body, part of the reason.
    let table = [
        ("", "EOF"),
        ("{", "EOF"),
        ("\u{0}", "expected"),
        (r#"{"domain":"web","descriptors":[]}"#, "descriptor list must not be empty"),
        (r#"{"descriptors":[{"entries":[{"key":"user"}]}]}"#, "domain must not be empty"),
        (r#"{"domain":"web","descriptor":[]}"#, "unknown field"),
        (r#"{"domain":"web","hitsAddend":-1}"#, "whole number"),
        (
            r#"{"domain":"web","descriptors":[{"entries":[{"key":"k"}],"limit":{"requestsPerUnit":1}}]}"#,
            "unit 0 is not defined",
        ),
    ];
    for (body, reason) in table {
        let (status, kind, text) = post(&service, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(kind.starts_with("text/plain"), "{kind}");
        assert!(text.starts_with("Bad Request") && text.contains(reason), "{body}: {text}");
    }
    let (status, ..) = post(&service, " ".repeat(256 * 1024 + 1)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let get = http::get(service.http_port(), "/json", &[]).expect("an answer");
    assert_eq!(get.status, 405);
    assert_eq!(post(&service, json_request("user")).await.0, StatusCode::OK);
}

/// The answers to a batch of these requests.
async fn batch(service: &Ratelimitd, requests: &[String]) -> (StatusCode, Value) {
    let (status, _, body) = post(service, format!("{{\"requests\":[{}]}}", requests.join(","))).await;
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[tokio::test]
async fn each_request_of_a_batch_is_decided_and_fails_alone() {
    let service = Ratelimitd::start(RULES);
    let unknown = r#"{"domain":"web","descriptor":[]}"#.to_owned();
    // A repeated field would be lost if the batch were read as a whole.
    let repeated = r#"{"domain":"web","domain":"x","descriptors":[{"entries":[{"key":"user"}]}]}"#.to_owned();
    let requests = [
        json_request("user"),
        unknown,
        json_request("slow"),
        json_request("user"),
        repeated,
        json_request("user"),
    ];
    let (status, body) = batch(&service, &requests).await;
    assert_eq!(status, StatusCode::OK);
    let answers = body["responses"].as_array().expect("a list");
    let told = |answer: &Value| match answer["overallCode"].as_str() {
        Some(code) => code.to_owned(),
        None => format!("{}", answer["status"]),
    };
    let told: Vec<String> = answers.iter().map(told).collect();
    let (user, other): (Vec<_>, Vec<_>) =
        told.into_iter().enumerate().partition(|(n, _)| [0, 3, 5].contains(n));
    let other: Vec<_> = other.into_iter().map(|(_, told)| told).collect();
    assert_eq!(other, ["400", "OK", "400"]);
    assert!(answers[1]["error"].as_str().is_some_and(|text| text.starts_with("Bad Request: unknown field")));
    // Which of three requests to one counter is denied is not promised.
    assert_eq!(user.iter().filter(|(_, told)| told == "OK").count(), 2, "{user:?}");
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    assert!(
        metrics.contains(r#"ratelimitd_request_duration_seconds_count{transport="http"} 6"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_batch_has_a_bound_and_a_shape() {
    let service = Ratelimitd::start(RULES);
    let many = |count: usize| vec![json_request("user"); count];
    let (status, body) = batch(&service, &many(256)).await;
    assert_eq!(status, StatusCode::OK);
    let codes =
        body["responses"].as_array().expect("a list").iter().map(|answer| answer["overallCode"].as_str());
    assert_eq!(codes.filter(|code| *code == Some("OK")).count(), 2, "the limit, and no more");
    for requests in [many(0), many(257)] {
        let (status, body) = batch(&service, &requests).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(body, "Bad Request: 'requests' must have 1 to 256 requests\n");
    }
    for (body, reason) in [
        (r#"{"requests":[{}],"domain":"web"}"#, "unknown field `domain`"),
        (r#"{"requests":{}}"#, "invalid type: map, expected a sequence"),
        (r#"{"requests":[{]}"#, "key must be a string"),
    ] {
        let (status, _, text) = post(&service, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(text.contains(reason), "{body}: {text}");
    }
}

#[test]
fn every_health_page_is_ok_in_normal_operation() {
    let service = Ratelimitd::start(RULES);
    for (path, body) in [("/healthcheck", "OK"), ("/livez", "ok\n"), ("/readyz", "ready\n")] {
        let answer = http::get(service.http_port(), path, &[]).expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (200, body), "{path}");
    }
    assert_eq!(http::get(service.http_port(), "/nothing", &[]).expect("an answer").status, 404);
}

#[tokio::test]
async fn metrics_count_decisions_requests_and_errors() {
    let service = Ratelimitd::start(RULES);
    for _ in 0..3 {
        post(&service, json_request("user")).await;
    }
    post(&service, "{").await;
    let page = http::get(service.http_port(), "/metrics", &[]).expect("an answer");
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        r#"ratelimitd_decisions_total{domain="web",outcome="over_limit",rule="per user"} 1"#,
        r#"ratelimitd_request_duration_seconds_count{transport="http"} 4"#,
        r#"ratelimitd_request_errors_total{kind="invalid",transport="http"} 1"#,
        r#"ratelimitd_rule_loads_total{result="success"} 1"#,
        "ratelimitd_memory_keys 1",
        "ratelimitd_rules 2",
    ] {
        assert!(page.body.lines().any(|shown| shown == line), "{line} is not in\n{}", page.body);
    }
}

#[test]
fn the_admin_port_shows_rules_and_build() {
    let service = Ratelimitd::start(RULES);
    let page = |path| http::get(service.admin_port(), path, &[]).expect("an answer");
    let index = page("/").body;
    for path in ["/rlconfig", "/rules", "/build"] {
        assert!(index.lines().any(|line| line.starts_with(path)), "{path} is not in {index}");
        assert_eq!(page(path).status, 200, "{path}");
    }
    assert!(
        page("/rlconfig").body.starts_with("web.user: unit=YEAR requests_per_unit=2, shadow_mode: false")
    );
    let build: Value = serde_json::from_str(&page("/build").body).expect("JSON");
    assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
    let state = || serde_json::from_str::<Value>(&page("/rules").body).expect("JSON");
    assert_eq!((&state()["in_force"], &state()["rules"]), (&json!(true), &json!(2)));

    std::fs::write(service.rules().join("rules.yaml"), "domain: web\ndescriptors: [{ key: '' }]")
        .expect("a file");
    wait::expect("the bad file on the admin page", || !state()["last_error"].is_null());
    assert_eq!(state()["in_force"], json!(false));
    let problems = state()["last_error"]["problems"].to_string();
    assert!(problems.contains("descriptor has empty key"), "{problems}");
    assert_eq!(state()["rules"], json!(2), "the previous rules stay in force");
}

#[tokio::test]
async fn a_connection_whose_client_does_not_read_is_closed() {
    let service = Ratelimitd::start(RULES);
    let mut client = TcpStream::connect(("127.0.0.1", service.http_port())).expect("a connection");
    client.set_nonblocking(true).expect("a socket option");
    // Writes until both send buffers are full, and then until the server closes the connection.
    let closed =
        wait::until(wait::PATIENCE, || match client.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n") {
            Ok(_) => None,
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => Some(error),
        });
    assert!(closed.is_some(), "the connection stays open");
}

#[test]
fn a_body_that_does_not_arrive_is_refused_and_counted() {
    let service = Ratelimitd::start(RULES);
    let mut client = http::connect(service.http_port()).expect("a connection");
    client
        .write_all(b"POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
        .expect("an open connection");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer, and the end");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let line = r#"ratelimitd_request_errors_total{kind="incomplete",transport="http"} 1"#;
    assert!(metrics.lines().any(|shown| shown == line), "{metrics}");
}

#[test]
fn a_body_of_malformed_chunks_is_a_bad_request() {
    let service = Ratelimitd::start(RULES);
    let table = [
        "-1\r\n{}\r\n0\r\n\r\n",
        "2\n{}\n0\n\n",
        "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}}}\r\n0\r\n\r\n",
    ];
    for chunks in table {
        let mut client = http::connect(service.http_port()).expect("a connection");
        let head = "POST /json HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        client.write_all(format!("{head}{chunks}").as_bytes()).expect("an open connection");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer, and the end");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert!(answer.contains("malformed message: the chunks of the body"), "{chunks:?}: {answer}");
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    for (kind, count) in [("invalid", 4), ("incomplete", 0)] {
        let line = format!("ratelimitd_request_errors_total{{kind=\"{kind}\",transport=\"http\"}} {count}");
        assert!(metrics.lines().any(|shown| shown == line), "{line} is not in\n{metrics}");
    }
}

/// The client sends all of its request before it reads, as a proxy does: a reset connection in place of the answer
/// would be a server that is away.
#[test]
fn a_request_whose_head_is_refused_is_answered_and_counted() {
    let service = Ratelimitd::start(RULES);
    let get =
        |headers: &[(&str, &str)]| http::get(service.http_port(), "/livez", headers).expect("an answer");
    let of_length = |bytes: usize| {
        let others = "GET /livez HTTP/1.1\r\nhost: localhost\r\nx-long: \r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        get(&[("x-long", &"x".repeat(bytes - others.len()))]).status
    };
    for _ in 0..25 {
        assert_eq!((of_length(32 << 10), of_length((32 << 10) + 1)), (200, 431));
        for kib in [45, 64, 100] {
            assert_eq!(of_length(kib << 10), 431, "{kib} KiB");
        }
    }
    assert_eq!((of_length(500 << 10), of_length(900 << 10)), (431, 431));
    let numbers: Vec<String> = (0..98).map(|number| format!("x-{number}")).collect();
    let headers: Vec<(&str, &str)> = numbers.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!((get(&headers[..97]).status, get(&headers).status), (200, 431));
    let malformed = format!("GET /livez HTTP/1.1\r\nno header\r\nx: {}\r\n\r\n", "x".repeat(900 << 10));
    let mut client = http::connect(service.http_port()).expect("a connection");
    client.write_all(malformed.as_bytes()).expect("all of it is taken");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer, and the end");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");

    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let line =
        format!("ratelimitd_request_errors_total{{kind=\"invalid\",transport=\"http\"}} {}", 25 * 4 + 2 + 2);
    assert!(metrics.lines().any(|shown| shown == line), "{line} is not in\n{metrics}");
    wait::expect("the refused heads in the log", || service.log().contains("too many or too long headers"));
}

#[test]
fn a_body_that_is_not_read_does_not_cost_its_client_the_answer() {
    let service = Ratelimitd::start(RULES);
    for _ in 0..100 {
        let lines = ["GET /livez HTTP/1.1", "host: localhost"];
        let stream = http::connect(service.http_port()).expect("a connection");
        let answer = http::exchange(stream, &lines, &"x".repeat(2 << 20)).expect("an answer");
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn a_body_of_the_smallest_elements_takes_a_bounded_amount_of_memory() {
    const LONGEST_BODY: usize = 1 << 20;
    let service = Plan::new(RULES).set("server.max_message_bytes", LONGEST_BODY).start();
    let before = service.peak_memory_kib();
    let list = |element: &str| vec![element; (LONGEST_BODY - 100) / (element.len() + 1)].join(",");
    for body in [
        format!(r#"{{"domain":"d","descriptors":[{}]}}"#, list("{}")),
        format!(r#"{{"domain":"d","descriptors":[{{"entries":[{}]}}]}}"#, list("{}")),
        format!("[{}]", list("1")),
    ] {
        let (status, _, reason) = post(&service, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{reason}");
        let grown = service.peak_memory_kib() - before;
        assert!(grown < 90 << 10, "{grown} KiB for a body of 1 MiB: {reason}");
    }
}
