//! `explain --decision`: sentences for the metadata of past decisions.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: api
descriptors:
  - key: team
    rate_limit: { name: daily, unit: day, requests_per_unit: 20000000, algorithm: fixed_window }
  - key: user
    rate_limit: { name: burst, unit: second, requests_per_unit: 10, burst: 20, algorithm: gcra }
  - { key: free }
";

/// Exit code, standard output and standard error for these lines.
fn explain(arguments: &[&str], lines: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["explain", "--decision", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("the binary reads its input");
    let Output { status, stdout, stderr } = child.wait_with_output().expect("an end");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// The metadata of a decision about `entry`, with more fields.
fn metadata(entry: &str, fields: &Value) -> String {
    let mut metadata = json!({
        "domain": "api", "descriptors": [{"entries": [entry]}], "decided_at_us": "1795702239916000", "rule": "daily",
    });
    let fields = fields.as_object().expect("fields").clone();
    metadata.as_object_mut().expect("an object").extend(fields);
    metadata.to_string()
}

/// Entry and further fields of the metadata; the first lines of the explanation, and whether the exit code is 0.
type Told<'t> = (&'t str, Value, &'t str, bool);

fn check(told: impl IntoIterator<Item = Told<'static>>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, RULES).expect("a rule file");
    for (entry, fields, first, succeeds) in told {
        let rules = ["--rules", file.to_str().expect("UTF-8")];
        let (code, out, error) = explain(&rules, &metadata(entry, &fields));
        assert_eq!((code, error.as_str()), (Some(i32::from(!succeeds)), ""), "{fields}");
        assert!(out.starts_with(first), "expected {first}\nfound {out}");
    }
}

#[test]
fn a_decision_is_told_in_sentences() {
    let denied =
        json!({"limit": "10000000 per day, fixed_window", "retry_after_ms": 35_360_084, "hitsAddend": 4e6});
    let same = "20000000 per day, fixed_window";
    let berlin = json!([{"entries": ["team=red"], "calendar": "Europe/Berlin"}]);
    let table = [
        (
            "team=red",
            denied,
            "2026-11-26T14:10:39.916000Z, domain api, team=red, cost 4,000,000: denied by 'daily' (10000000 per day, fixed_window).
The same request had room again after 9h 49m 20s, at 2026-11-27T00:00:00Z.
By these rules, the limit is now 20000000 per day, fixed_window.
Domain 'api', descriptor team=red
",
            true,
        ),
        (
            "team=red",
            json!({"limit": same, "retry_after_ms": 1_000, "descriptors": berlin}),
            "2026-11-26T14:10:39.916000Z, domain api, team=red: denied by 'daily' (20000000 per day, fixed_window).
The same request had room again after 1s, at 2026-11-26T14:10:40.916000Z (2026-11-26 15:10:40 +01:00, Europe/Berlin).
By these rules, the same limit applies.
",
            true,
        ),
        (
            "user=ann",
            json!({"limit": "blocked", "exception": {"daily": "60 -> blocked (a.yaml:3)"}}),
            "2026-11-26T14:10:39.916000Z, domain api, user=ann: denied by 'daily' (blocked).
Exception for 'daily': 60 -> blocked (a.yaml:3).
Waiting would not have helped.
By these rules, 'daily' does not apply, but 'burst' (10 per second, gcra, burst 20).
",
            true,
        ),
        (
            "free=x",
            json!({"limit": same, "on_store_failure": {"daily": "deny"}}),
            "2026-11-26T14:10:39.916000Z, domain api, free=x: denied by 'daily' (20000000 per day, fixed_window).
Redis did not answer: on_store_failure of 'daily' was deny.
By these rules, no limit applies.
",
            false,
        ),
    ];
    check(table);
}

#[test]
fn a_hash_an_own_limit_and_hostile_values_are_told() {
    let hash = "team=%k0123456789abcdef0123456789abcdef";
    let own = json!([{"entries": ["team=red"], "limit": "requests_per_unit:7 unit:MINUTE unit_multiplier:{value:10}"}]);
    let table = [
        (
            hash,
            json!({"decided_at_us": null}),
            "domain api, team=%k0123456789abcdef0123456789abcdef: decided by 'daily'.
team=%k0123456789abcdef0123456789abcdef is a hash: rules for this single value, and the store key below, can differ.
By these rules, the limit is now 20000000 per day, fixed_window.
",
            true,
        ),
        (
            "",
            json!({"limit": "7 per 10 minutes, fixed_window", "rule": "override", "descriptors": own}),
            "2026-11-26T14:10:39.916000Z, domain api, team=red: denied by 'override' (7 per 10 minutes, fixed_window).
Waiting would not have helped.
By these rules, the same limit applies.
",
            true,
        ),
        (
            "free=a\n\u{1b}[2J",
            json!({"rule": null}),
            "2026-11-26T14:10:39.916000Z, domain api, free=a\\n\\u{1b}[2J: no limit applied.\nDomain 'api'",
            false,
        ),
    ];
    check(table);
}

#[test]
fn a_line_that_is_no_metadata_is_named_by_its_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, RULES).expect("a rule file");
    let good = metadata("team=red", &json!({}));
    let lines = format!(
        "{good}\n\nnull\n{{\"domain\":\"api\",\"descriptors\":[{{\"entries\":[\"team\"]}}]}}\n{good}\n"
    );
    let (code, out, error) = explain(&["--rules", file.to_str().expect("UTF-8")], &lines);
    assert_eq!((code, out.matches("decided by 'daily'").count()), (Some(1), 2), "{out}");
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines[0].starts_with("line 3: not the metadata of a decision: "), "{error}");
    assert_eq!(lines[1], "line 4: not the metadata of a decision: 'team' is no key=value");
    // Without the service, each line would fail alike.
    let (code, _, error) = explain(&["--admin", "127.0.0.1:1"], &format!("{good}\n{good}"));
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
}

#[test]
fn the_metadata_of_a_denial_names_the_limit_that_denied() {
    let rules = RULES.replace("20000000", "1");
    let service = Plan::new(&rules).set("response.dynamic_metadata", true).start();
    let metadata = [1, 2].map(|_| call(&service)["dynamicMetadata"].clone());
    assert_eq!((&metadata[0]["rule"], &metadata[0]["limit"]), (&json!("daily"), &Value::Null));
    assert_eq!(metadata[1]["limit"], "1 per day, fixed_window", "{}", metadata[1]);
    let admin = format!("127.0.0.1:{}", service.admin_port());
    let lines = metadata.map(|line| line.to_string()).join("\n");
    let (code, out, error) = explain(&["--admin", &admin], &lines);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    let denied = "domain api, team=red: denied by 'daily' (1 per day, fixed_window).\nThe same request had room again after ";
    assert!(out.contains(denied) && out.contains("\nBy these rules, the same limit applies.\n"), "{out}");
    assert_eq!(out.matches("decided by 'daily'").count(), 1, "{out}");
    assert_eq!(out.matches("store key").count(), 2, "{out}");
}

fn call(service: &Ratelimitd) -> Value {
    let body = json!({"domain": "api", "descriptors": [{"entries": [{"key": "team", "value": "red"}]}]});
    let stream = http::connect(service.http_port()).expect("a connection");
    let lines = ["POST /json HTTP/1.1", "host: localhost", "content-type: application/json"];
    let answer = http::exchange(stream, &lines, &body.to_string()).expect("an answer");
    serde_json::from_str(&answer.body).expect("JSON")
}
