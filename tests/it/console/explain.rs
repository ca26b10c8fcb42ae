//! `POST /explain` and `ratelimitctl explain --admin`: the rules in force, not those of the files.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{RULES, post, state_with};
use crate::support::process::Ratelimitd;

fn explain(service: &Ratelimitd, arguments: &[&str]) -> (Option<i32>, String) {
    let admin = format!("127.0.0.1:{}", service.admin_port());
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["explain", "--admin", &admin, "--domain", "edge"])
        .args(arguments)
        .output()
        .expect("the binary runs");
    let text = [stdout, stderr].concat();
    (status.code(), String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn a_request_is_explained_by_the_rules_in_force() {
    let service = Ratelimitd::start(RULES);
    let body = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]});
    let answer: Value = serde_json::from_str(&post(&service, "/explain", &body, "").body).expect("JSON");
    assert_eq!(answer["matched"], 1, "{answer}");
    let text = answer["text"].as_str().expect("a text");
    assert!(text.contains("1 per day") && text.contains("per-user"), "{text}");
    let (code, shown) = explain(&service, &["user=ann"]);
    assert_eq!((code, shown.as_str()), (Some(0), text));
    assert_eq!(explain(&service, &["usr=ann"]).0, Some(1), "no limit applies");

    // The files say something else, but it cannot be used.
    std::fs::write(service.rules().join("rules.yaml"), RULES.replace("unit: day", "unit: dya"))
        .expect("a rule file");
    state_with(&service, "rejected rules", |state| !state["rules"]["rejected"].is_null());
    assert_eq!(explain(&service, &["user=ann"]).1, text);
}

#[test]
fn no_service_is_an_exit_code_of_its_own() {
    let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["explain", "--admin", "127.0.0.1:1", "--domain", "edge", "user=ann"])
        .output()
        .expect("the binary runs");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("ratelimitctl explain: cannot connect to 127.0.0.1:1"), "{error}");
}
