//! A row that blocks a key for some time: its end is the wait in every answer, and console and `top` show that it
//! works.

use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{ask, post, state_with};
use crate::support::http::{connect, exchange};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::program::program_of;
use crate::support::wait;

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 1, algorithm: gcra } }
";
const USER: &str = "ann@example.org";
const TWO_HOURS: u64 = 7_200;

/// A service with an empty file of exceptions.
struct Fixture {
    service: Ratelimitd,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let service = Plan::new(RULES)
            .set("exceptions.path", folder.path().display().to_string())
            .set("response.headers", "ietf")
            .set("response.retry_after", true)
            .set("response.dynamic_metadata", true);
        let fixture = Self { folder, service: service.start() };
        fixture.set_row("");
        fixture
    }

    fn set_row(&self, row: &str) {
        std::fs::write(self.folder.path().join("blocks.yaml"), row).expect("a file");
    }

    /// Blocks the user for two hours. Returns the end, in seconds since the epoch and as the row has it.
    fn block(&self) -> (u64, String) {
        let until_s = wait::unix_seconds() + TWO_HOURS;
        let until = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(until_s)).to_string();
        self.set_row(&format!(
            "- {{ domain: edge, key: user, value: {USER}, block: true, until: {until} }}\n"
        ));
        (until_s, until)
    }

    fn ask(&self) -> bool {
        ask(&self.service, "edge", &[("user", USER)])
    }

    /// What a command prints. `ADMIN` and `GRPC` stand for the addresses of the service.
    fn output(&self, arguments: &str) -> String {
        let address = |port: u16| format!("127.0.0.1:{port}");
        let words: Vec<_> = arguments.split(' ').collect();
        let arguments = words.iter().map(|word| match *word {
            "ADMIN" => address(self.service.admin_port()),
            "GRPC" => address(self.service.grpc_port()),
            other => other.to_owned(),
        });
        let mut command = Command::new(program_of(&words));
        let output = command.args(arguments).output().expect("the binary runs");
        String::from_utf8(output.stdout).expect("UTF-8") + &String::from_utf8_lossy(&output.stderr)
    }
}

fn denied_15m(state: &Value) -> Option<u64> {
    state["keys"][0]["denied_15m"].as_u64()
}

#[test]
fn a_blocked_key_stays_one_row_and_is_seen_to_be_blocked() {
    let fixture = Fixture::start();
    let denied = (0..5).filter(|_| fixture.ask()).count() as u64;
    let service = &fixture.service;
    let before = state_with(service, "the denials", |state| denied_15m(state) == Some(denied));
    assert_eq!(before["keys"][0]["exception"], Value::Null);
    let (until_s, until) = fixture.block();
    // The key has the badge before it is denied again.
    let exception = json!({"kind": "block", "row": "blocks.yaml:1", "until": until_s});
    state_with(service, "the row", |state| state["keys"][0]["exception"] == exception);
    assert!(fixture.ask() && fixture.ask());
    // One row, which has the denials of the limit and those of the row of exceptions.
    let sum = denied + 2;
    let state = state_with(service, "all denials", |state| denied_15m(state) == Some(sum));
    assert_eq!(state["keys"].as_array().map(Vec::len), Some(1), "{state}");
    assert_eq!(state["exceptions"]["block"], json!({"rows": 1, "requests_15m": 2}));
    let top = fixture.output("top --once --admin ADMIN");
    let time = &until[11..19];
    assert!(top.contains(&format!("per-user (edge), blocked until {time} (blocks.yaml:1)")), "{top}");
    assert!(top.contains(&format!("≥ {sum}\n")), "{top}");
    assert!(top.contains("1 row blocks: 2 requests denied in 15 min."), "{top}");

    fixture.set_row(&format!("- {{ domain: edge, key: user, value: {USER}, exempt: true }}\n"));
    let exception = json!({"kind": "exempt", "row": "blocks.yaml:1", "until": null});
    state_with(service, "the new row", |state| state["keys"][0]["exception"] == exception);
    assert!(!fixture.ask());
    let exempt = json!({"rows": 1, "requests_15m": 1});
    state_with(service, "an exempt request", |state| state["exceptions"]["exempt"] == exempt);
}

#[test]
fn every_answer_has_the_end_of_the_block_as_the_wait() {
    let fixture = Fixture::start();
    let (until_s, until) = fixture.block();
    let asked_at = wait::unix_seconds();
    wait::expect("the row is in force", || fixture.ask() && fixture.ask());
    let body = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": USER}]}]});
    let post_json = || {
        let stream = connect(fixture.service.http_port()).expect("a connection");
        let answer = exchange(stream, &["POST /json HTTP/1.1", "host: localhost"], &body.to_string());
        let answer: Value = serde_json::from_str(&answer.expect("an answer").body).expect("JSON");
        answer
    };
    let is_blocked = |answer: &Value| answer.to_string().contains("blocked until");
    let answer = wait::until(wait::PATIENCE, || Some(post_json()).filter(is_blocked)).expect("a block");
    let is_wait = |seconds: u64| (asked_at..=wait::unix_seconds() + 1).contains(&(until_s - seconds));
    let seconds = |text: &str| text.trim_end_matches('s').parse::<f64>().expect("seconds").ceil() as u64;
    let reset = answer["statuses"][0]["durationUntilReset"].as_str().expect("a duration");
    assert!(is_wait(seconds(reset)), "{answer}");
    let header = |name: &str| {
        let headers = answer["responseHeadersToAdd"].as_array().expect("headers").iter();
        let found = headers.clone().find(|header| header["key"] == name).expect("the header");
        found["value"].as_str().expect("a text").to_owned()
    };
    assert!(is_wait(seconds(&header("Retry-After"))), "{answer}");
    let limits = header("RateLimit");
    assert!(is_wait(seconds(limits.rsplit_once(";t=").expect("a time").1)), "{answer}");
    let wait_ms = answer["dynamicMetadata"]["retry_after_ms"].as_f64().expect("a number");
    assert!(is_wait((wait_ms / 1_000.0).ceil() as u64), "{answer}");

    let checked = fixture.output(&format!("check --address GRPC --timeout 10s --domain edge user={USER}"));
    for part in [
        "0 of 0 per minute left, blocked for at least ".to_owned(),
        format!("exception for per-user: 1 -> blocked until {until} ("),
    ] {
        assert!(checked.contains(&part), "{checked}");
    }
    let explained = fixture.output(&format!("explain --admin ADMIN --domain edge user={USER}"));
    assert!(explained.contains(&format!("1 -> blocked until {until} (")), "{explained}");
    let shown: Value =
        serde_json::from_str(&post(&fixture.service, "/counters/show", &body, "").body).expect("JSON");
    let time = |field: &str| {
        let time = shown["counters"][0][field].as_str().expect("a time");
        humantime::parse_rfc3339(time).expect("as in RFC 3339")
    };
    let wait = time("refills_at").duration_since(time("read_at")).expect("a later time");
    assert!(is_wait(u64::try_from(wait.as_micros().div_ceil(1_000_000)).expect("a short wait")), "{shown}");
}
