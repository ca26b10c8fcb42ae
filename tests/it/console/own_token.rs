//! The token that a service makes for itself: the values of keys without a setting and without a restart.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{RULES, ask, post, state_with};
use crate::support::process::Ratelimitd;

fn token(service: &Ratelimitd) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["token", "--admin", &format!("http://127.0.0.1:{}", service.admin_port())])
        .output()
        .expect("the binary runs")
}

/// Denies a user. Returns the row's id and the masked value.
fn denied(service: &Ratelimitd) -> (String, String) {
    for _ in 0..2 {
        ask(service, "edge", &[("user", "ann@example.org")]);
    }
    let state = state_with(service, "a key", |state| !state["keys"][0].is_null());
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&state["keys"][0]["id"]), text(&state["keys"][0]["entries"][0][1]))
}

#[test]
fn the_values_of_keys_need_one_command_and_no_restart() {
    let mut service = Ratelimitd::start(RULES);
    let (id, masked) = denied(&service);
    assert!(masked.starts_with("an…#"), "{masked}");
    let body = json!({"ids": [id], "reason": "INC-42"});
    let refused = post(&service, "/console/values", &body, "");
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("`ratelimitctl token` prints it"), "{}", refused.body);
    let wrong = post(&service, "/console/values", &body, "guess");
    assert_eq!((wrong.status, wrong.body.starts_with("wrong token: ")), (401, true), "{}", wrong.body);

    let Output { status, stdout, .. } = token(&service);
    assert!(status.success());
    let own = String::from_utf8(stdout).expect("a token").trim().to_owned();
    let shown = post(&service, "/console/values", &body, &own);
    let shown: Value = serde_json::from_str(&shown.body).expect("JSON");
    assert_eq!(shown["keys"][0]["entries"], json!([["user", "ann@example.org"]]));
    // Everything else is open without a token, as before.
    assert_eq!(post(&service, "/console/show", &json!({"id": id}), "").status, 200);
    let file = service.own_token_file().expect("the token has a file");
    let mode = std::fs::metadata(file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let log = service.log_with("values of denied keys shown through the admin port");
    assert!(!log.contains(&own) && !log.contains("ann@"), "{log}");

    service.restart();
    assert_eq!(denied(&service), (id, masked), "the id and the tag are those of before");
    assert_eq!(String::from_utf8(token(&service).stdout).expect("a token").trim(), own);
}

#[test]
fn without_a_service_there_is_no_token() {
    let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["token", "--admin", "unix:/nowhere/admin.sock"])
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(error.contains("no service on admin address unix:/nowhere/admin.sock"), "{error}");
}
