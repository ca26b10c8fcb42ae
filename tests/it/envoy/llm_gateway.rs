//! examples/llm-gateway: a real Envoy with the example's configuration, the example's upstream, and the rules of
//! examples/recipes/llm-tokens.yaml. What docs/budgets.md says is charged, is charged.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use super::pages::recipe;
use super::{in_project, replace};
use crate::support::daemon::Daemon;
use crate::support::envoy::Envoy;
use crate::support::http::{self, Response};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

/// What Envoy charges before a request.
const ESTIMATE: u64 = 2_000;
/// The smaller of the two limits, which is the first one of the rule.
const LIMIT: u64 = 100_000;

/// The real cost: the tokens that the model reports.
const REPORTED: &str = "%DYNAMIC_METADATA(llm:total_tokens)%";

struct Gateway {
    envoy: Envoy,
    service: Ratelimitd,
    upstream: Daemon,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(in_project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

impl Gateway {
    fn start() -> Self {
        Self::start_with_cost(REPORTED)
    }

    /// Settles with this expression in place of the reported tokens.
    fn start_with_cost(cost: &str) -> Self {
        // Both limits per year, so that no window ends during a test.
        let rules = read("examples/recipes/llm-tokens.yaml").lines().fold(String::new(), |text, line| {
            let is_of_a_month = ["unit: month", "calendar:"].iter().any(|key| line.trim().starts_with(key));
            match line.trim() {
                "unit: minute" | "unit: month" => text + &line.replace(line.trim(), "unit: year") + "\n",
                _ if is_of_a_month => text,
                _ => text + line + "\n",
            }
        });
        let service = Plan::new(&rules).start();
        let mut python = Command::new("python3");
        python.arg(in_project("examples/llm-gateway/upstream.py")).args(["--port", "0"]);
        let upstream = Daemon::spawn("the upstream", "apt-get install python3", &mut python);
        let log = upstream.log_with("serving on port ");
        let port = log.trim().rsplit(' ').next().expect("a port");
        let local = |port: &str| format!("address: 127.0.0.1, port_value: {port}");
        let replacements = [
            (local("9901"), local("0")),
            (local("10000"), local("0")),
            (local("9000"), local(port)),
            (local("8081"), local(&service.grpc_port().to_string())),
        ];
        let configuration = replacements
            .iter()
            .fold(read("examples/llm-gateway/envoy.yaml"), |text, (from, to)| replace(&text, from, to));
        let envoy = Envoy::start_text(&replace(&configuration, REPORTED, cost));
        wait::expect("the service is healthy", || envoy.stat("cluster.ratelimitd.membership_healthy") == 1);
        Self { envoy, service, upstream }
    }

    /// The lines of a request of `tenant`, without its body.
    fn lines(tenant: &str) -> Vec<String> {
        let headers =
            ["POST /v1/chat/completions HTTP/1.1", "host: localhost", "content-type: application/json"];
        headers.into_iter().map(str::to_owned).chain([format!("x-tenant: {tenant}")]).collect()
    }

    fn ask(&self, tenant: &str, body: &Value) -> Response {
        let connection = http::connect(self.envoy.port("http")).expect("Envoy listens");
        http::exchange(connection, &Self::lines(tenant), &body.to_string()).expect("an answer")
    }

    /// Starts a slow stream and reads this many of its events. Returns the open connection and what it has read.
    fn start_stream(&self, tenant: &str, body: &str, events: usize) -> (TcpStream, String) {
        let mut connection = http::connect(self.envoy.port("http")).expect("Envoy listens");
        let (head, length) = (Self::lines(tenant).join("\r\n"), body.len());
        write!(connection, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").expect("Envoy reads");
        let mut answer = [0; 1024];
        let mut text = String::new();
        while text.matches(EVENT).count() < events {
            let count = connection.read(&mut answer).expect("Envoy answers");
            assert_ne!(count, 0, "the stream ends: {text}");
            text.push_str(&String::from_utf8_lossy(&answer[..count]));
        }
        (connection, text)
    }

    /// Starts a slow stream and hangs up after its first event.
    fn hang_up(&self, tenant: &str) {
        drop(self.start_stream(tenant, &slow_stream(), 1));
    }

    /// The units of the tenant that are charged to the smaller limit now; `None` if the answer tells of the larger one.
    /// It tells of the limit with the smaller share left, and a settle is one decision for each limit, so a check
    /// between them finds the larger limit with the estimate.
    fn charged(&self, tenant: &str) -> Option<u64> {
        let entry = json!({"key": "tenant", "value": tenant});
        let check = json!({"domain": "llm", "descriptors": [{"entries": [entry], "hitsAddend": "0"}]});
        let lines = ["POST /json HTTP/1.1", "host: localhost", "content-type: application/json"];
        let connection = http::connect(self.service.http_port()).expect("the service listens");
        let answer = http::exchange(connection, &lines, &check.to_string()).expect("an answer").body;
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let status = &answer["statuses"][0];
        let is_smaller = status["currentLimit"]["requestsPerUnit"] == LIMIT;
        is_smaller.then(|| LIMIT - status["limitRemaining"].as_u64().expect("a number"))
    }

    /// Envoy settles after the response.
    fn expect_charged(&self, tenant: &str, units: u64) {
        let charged =
            wait::until(wait::PATIENCE, || self.charged(tenant).filter(|charged| *charged == units));
        assert!(
            charged.is_some(),
            "{tenant}: {:?} units are charged instead of {units}",
            self.charged(tenant)
        );
    }
}

/// An event of the model's stream, with the empty line after it.
const EVENT: &str = "data: {\"choices\": [{\"delta\": {\"content\": \"word \"}}]}\n\n";

fn slow_stream() -> String {
    json!({"messages": [{"content": "Say 1000 words"}], "stream": true, "seconds_per_word": 0.1}).to_string()
}

fn say(words: u64) -> Value {
    json!({"messages": [{"content": format!("Say {words} words")}]})
}

/// The prompt of [`say`] has three words.
const PROMPT: u64 = 3;

#[test]
fn a_request_costs_what_the_model_reports() {
    let mut gateway = Gateway::start();
    assert_eq!(gateway.ask("small", &say(50)).status, 200);
    gateway.expect_charged("small", PROMPT + 50);
    assert_eq!(gateway.ask("large", &say(3_000)).status, 200);
    gateway.expect_charged("large", PROMPT + 3_000);

    let stream = json!({"messages": [{"content": "Say 70 words"}], "stream": true});
    assert!(gateway.ask("stream", &stream).body.contains("[DONE]"));
    gateway.expect_charged("stream", PROMPT + 70);

    assert_eq!(gateway.ask("failed", &json!({"messages": [{"content": "fail"}]})).status, 500);
    gateway.expect_charged("failed", 0);
    gateway.hang_up("gone");
    gateway.expect_charged("gone", ESTIMATE);

    gateway.upstream.kill();
    wait::expect("Envoy has no upstream", || gateway.ask("down", &say(1)).status == 503);
    gateway.expect_charged("down", 0);
}

/// The expression of docs/recipes-proxies.md: 200 bytes of a stream are a token, four bytes of a request are one.
#[test]
fn a_stream_without_its_last_event_costs_what_was_delivered() {
    let page = recipe("Streams without a last event", "envoy");
    let cost = page["rate_limits"][1]["hits_addend"]["format"].as_str().expect("an expression");
    let mut gateway = Gateway::start_with_cost(cost);
    assert_eq!(gateway.ask("small", &say(50)).status, 200);
    gateway.expect_charged("small", PROMPT + 50);
    let stream = json!({"messages": [{"content": "Say 70 words"}], "stream": true});
    assert!(gateway.ask("stream", &stream).body.contains("[DONE]"));
    gateway.expect_charged("stream", PROMPT + 70);
    assert_eq!(gateway.ask("failed", &json!({"messages": [{"content": "fail"}]})).status, 500);
    gateway.expect_charged("failed", 0);
    // Fewer than 200 bytes are delivered.
    gateway.hang_up("gone");
    gateway.expect_charged("gone", ESTIMATE);

    let body = slow_stream();
    let (mut connection, mut text) = gateway.start_stream("broken", &body, 10);
    gateway.upstream.kill();
    // The stream is not complete, so its end can be an error.
    let _ = connection.read_to_string(&mut text);
    let delivered = text.matches(EVENT).count() * EVENT.len();
    assert!(delivered >= 10 * EVENT.len(), "{text}");
    gateway.expect_charged("broken", (body.len() / 4 + delivered / 200) as u64);
}

#[test]
fn concurrent_requests_cannot_exceed_the_budget() {
    let gateway = Gateway::start();
    let slow = json!({"messages": [{"content": "Say 10 words"}], "stream": true, "seconds_per_word": 0.4});
    // All at the same time, and none of them is settled before the last one is decided.
    let codes: Vec<u16> = thread::scope(|scope| {
        let calls: Vec<_> = (0..60).map(|_| scope.spawn(|| gateway.ask("acme", &slow).status)).collect();
        calls.into_iter().map(|call| call.join().expect("an answer")).collect()
    });
    let admitted = codes.iter().filter(|code| **code == 200).count() as u64;
    assert_eq!(admitted, LIMIT / ESTIMATE, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 429).count(), 10, "{codes:?}");
    // A denied request has no receipt, so it settles nothing.
    gateway.expect_charged("acme", admitted * (PROMPT + 10));
    assert_eq!(gateway.ask("acme", &say(1)).status, 200);
}
