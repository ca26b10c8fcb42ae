//! Look and reset by the id of a row, with two tokens.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{RULES, ask, post, row, state_with};
use crate::support::http::{connect, exchange};
use crate::support::process::{Plan, Ratelimitd};

fn id_of_the_only_key(service: &Ratelimitd) -> String {
    let state = state_with(service, "a key", |state| !state["keys"][0].is_null());
    state["keys"][0]["id"].as_str().expect("an id").to_owned()
}

fn remaining(service: &Ratelimitd, user: &str, token: &str) -> u64 {
    let body = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": user}]}]});
    let answer: Value =
        serde_json::from_str(&post(service, "/counters/show", &body, token).body).expect("JSON");
    answer["counters"][0]["remaining"].as_u64().expect("a number")
}

#[test]
fn a_look_changes_nothing_and_a_reset_exactly_one_counter() {
    let service = Ratelimitd::start(RULES);
    for user in ["ann", "ann", "bob"] {
        ask(&service, "edge", &[("user", user)]);
    }
    let id = id_of_the_only_key(&service);
    let look = post(&service, "/console/show", &json!({"id": id}), "");
    let look: Value = serde_json::from_str(&look.body).expect("JSON");
    assert_eq!(
        (&look["remaining"], &look["limit"], &look["name"]),
        (&json!(0), &json!(1), &json!("per-user"))
    );
    assert!(look["key"].as_str().is_some_and(|key| key.starts_with("user=#")), "{look}");
    assert_eq!([remaining(&service, "ann", ""), remaining(&service, "bob", "")], [0, 0]);

    let answer =
        post(&service, "/console/reset", &json!({"id": id, "reason": "a\u{202e}\u{2028}\ntest"}), "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.contains("\"had_units\": true"), "{}", answer.body);
    assert_eq!([remaining(&service, "ann", ""), remaining(&service, "bob", "")], [1, 0]);
    let log = service.log_with("counter reset through the admin port");
    assert!(log.contains("peer=127.0.0.1") && log.contains(r#"reason="a   test""#), "{log}");
    state_with(&service, "the mark of the reset", |state| {
        state["marks"].to_string().contains("counter reset")
    });
}

#[test]
fn what_cannot_be_done_says_why() {
    let service = Ratelimitd::start(RULES);
    ask(&service, "edge", &[("user", "ann")]);
    ask(&service, "edge", &[("user", "ann")]);
    let id = id_of_the_only_key(&service);
    let table = [
        (json!({"id": "000000000000", "reason": "x"}), 404, "no row has the id 000000000000"),
        (json!({"id": "../../etc", "reason": "x"}), 400, "12 hexadecimal digits"),
        (json!({"id": id}), 400, "a reason of 1 to 200 characters"),
        (json!({"id": id, "reason": " "}), 400, "a reason of 1 to 200 characters"),
        (json!({"id": id, "reason": "x".repeat(201)}), 400, "a reason of 1 to 200 characters"),
        (json!(["x"]), 400, "expected an object"),
        (json!({"id": id, "reasons": "x"}), 400, "unknown field `reasons`"),
    ];
    for (body, status, text) in table {
        let answer = post(&service, "/console/reset", &body, "");
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert!(answer.body.contains(text), "{body}: {}", answer.body);
    }
    let changed = RULES.replace("requests_per_unit: 1,", "requests_per_unit: 2,");
    std::fs::write(service.rules().join("rules.yaml"), changed).expect("a rule file");
    state_with(&service, "new rules", |state| state["rules"]["generation"] == 2);
    let answer = post(&service, "/console/reset", &json!({"id": id, "reason": "x"}), "");
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("of this row has changed"), "{}", answer.body);
}

#[test]
fn a_viewer_looks_and_an_operator_acts() {
    let token_file = |token: &str| {
        let file = NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), token).expect("room for a token");
        file
    };
    let (viewer, operator) = (token_file("viewer"), token_file("operator"));
    let service = Plan::new(RULES)
        .set("server.admin.token_file", viewer.path().to_string_lossy())
        .set("server.admin.operator_token_file", operator.path().to_string_lossy())
        .start();
    for _ in 0..2 {
        ask(&service, "edge", &[("user", "ann@example.org")]);
    }
    let get = |token: &str| {
        let lines =
            ["GET /console/state HTTP/1.1", "host: localhost", &format!("authorization: Bearer {token}")];
        exchange(connect(service.admin_port()).expect("a connection"), &lines, "").expect("an answer")
    };
    assert_eq!(["viewer", "operator", "guess"].map(|token| get(token).status), [200, 200, 401]);
    let state = || serde_json::from_str::<Value>(&get("viewer").body).expect("JSON");
    assert_eq!(state()["instance"]["values"], "operator_token");
    let id = crate::support::wait::until(crate::support::wait::PATIENCE, || {
        state()["keys"][0]["id"].as_str().map(str::to_owned)
    });
    let id = id.expect("a denied key");
    let values = json!({"ids": [id], "reason": "an incident"});
    let reset = json!({"id": id, "reason": "an incident"});
    for (path, body) in
        [("/console/values", &values), ("/console/reset", &reset), ("/counters/reset", &reset)]
    {
        assert_eq!(post(&service, path, body, "viewer").status, 403, "{path}");
        assert_eq!(post(&service, path, body, "").status, 401, "{path}");
    }
    assert_eq!(post(&service, "/console/show", &json!({"id": id}), "viewer").status, 200);
    let shown = post(&service, "/console/values", &values, "operator");
    let shown: Value = serde_json::from_str(&shown.body).expect("JSON");
    assert_eq!(shown["keys"], json!([{"id": id, "entries": [["user", "ann@example.org"]], "exact": [true]}]));
    assert_eq!(post(&service, "/console/reset", &reset, "operator").status, 200);
    assert!(row(&state(), &json!([["user", "ann@example.org"]])).is_none(), "the state stays masked");
    let log = service.log_with("counter reset through the admin port");
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("values of denied keys shown through the admin port keys=1"), 1, "{log}");
    assert_eq!(count("counter reset through the admin port"), 1, "{log}");
    assert_eq!(count("admin port rejected an action"), 1, "once a minute: {log}");
    assert!(!log.contains("=viewer") && !log.contains("=operator"), "{log}");
}

#[test]
fn values_need_a_token_and_secret_ones_are_never_shown() {
    let service = Ratelimitd::start(RULES);
    ask(&service, "edge", &[("user", "ann")]);
    ask(&service, "edge", &[("user", "ann")]);
    let id = id_of_the_only_key(&service);
    let answer = post(&service, "/console/values", &json!({"ids": [id], "reason": "x"}), "");
    assert_eq!(answer.status, 403, "{}", answer.body);
    assert!(answer.body.contains("showing key values needs a token"), "{}", answer.body);

    let rules = RULES.replace("{ key: user,", "{ key: user, secret: true,");
    let token = NamedTempFile::new().expect("a temporary file");
    std::fs::write(token.path(), "token").expect("room for a token");
    let service = Plan::new(&rules)
        .set("secrets.key", "k".repeat(32))
        .set("server.admin.token_file", token.path().to_string_lossy())
        .start();
    ask(&service, "edge", &[("user", "ann-the-secret")]);
    ask(&service, "edge", &[("user", "ann-the-secret")]);
    let get = || {
        let lines = ["GET /console/state HTTP/1.1", "host: localhost", "authorization: Bearer token"];
        exchange(connect(service.admin_port()).expect("a connection"), &lines, "").expect("an answer").body
    };
    let id = crate::support::wait::until(crate::support::wait::PATIENCE, || {
        let state: Value = serde_json::from_str(&get()).expect("JSON");
        state["keys"][0]["id"].as_str().map(str::to_owned)
    });
    let shown = post(&service, "/console/values", &json!({"ids": [id], "reason": "x"}), "token");
    assert_eq!(shown.status, 200, "{}", shown.body);
    assert!(
        shown.body.contains("%k") && shown.body.contains("false") && !shown.body.contains("ann-the-secret"),
        "{}",
        shown.body
    );
}

#[test]
fn the_reason_of_a_reset_by_the_command_is_logged() {
    let service = Ratelimitd::start(RULES);
    ask(&service, "edge", &[("user", "ann")]);
    let admin = format!("127.0.0.1:{}", service.admin_port());
    let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args([
            "counters", "reset", "--admin", &admin, "--domain", "edge", "--reason", "ticket 7", "user=ann",
        ])
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    let log = service.log_with("counter reset through the admin port");
    assert!(log.contains(r#"reason="ticket 7""#) && log.contains("peer=127.0.0.1"), "{log}");
}

#[test]
fn a_key_with_a_tier_or_a_row_has_the_counter_of_its_rule() {
    const TIERS: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit:
      { name: per-user, unit: year, requests_per_unit: 1, algorithm: fixed_window, tiers: { pro: 3, off: 0 } }
  - key: job
    rate_limit:
      name: per-job
      unit: year
      requests_per_unit: 1
      algorithm: token_bucket
      refill: interval
      tiers: { pro: { requests_per_unit: 3, burst: 3 } }
";
    const ROWS: &str = "
- { domain: edge, key: user, value: pro, tier: pro }
- { domain: edge, key: user, value: twice, multiplier: 2 }
- { domain: edge, key: user, value: off, tier: off }
- { domain: edge, key: user, value: blocked, block: true }
- { domain: edge, key: job, value: pro, tier: pro }
- { domain: edge, key: job, value: twice, multiplier: 2 }
";
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rows.yaml"), ROWS).expect("a file");
    let path = folder.path().display().to_string();
    let service = Plan::new(TIERS).set("exceptions.path", path).start();
    // (key, value, the number of requests that are admitted; 0 if the key has no counter)
    let table = [
        ("user", "none", 1),
        ("user", "pro", 3),
        ("user", "twice", 2),
        ("user", "off", 0),
        ("user", "blocked", 0),
        ("job", "none", 1),
        ("job", "pro", 3),
        ("job", "twice", 2),
    ];
    let mut seen = Vec::new();
    for (key, value, admitted) in table {
        let denied = (0..=admitted).map(|_| ask(&service, "edge", &[(key, value)]));
        assert_eq!(denied.filter(|denied| *denied).count(), 1, "{key}={value}");
        let new_id = |state: &Value| {
            let keys = state["keys"].as_array().expect("a list").iter();
            let mut ids = keys.map(|key| key["id"].as_str().expect("an id").to_owned());
            ids.rfind(|id| !seen.contains(id))
        };
        let id = new_id(&state_with(&service, value, |state| new_id(state).is_some())).expect("was there");
        let look = post(&service, "/console/show", &json!({"id": id}), "");
        let reset = post(&service, "/console/reset", &json!({"id": id, "reason": "a test"}), "");
        seen.push(id);
        if admitted == 0 {
            assert_eq!([look.status, reset.status], [409, 409], "{key}={value}");
            assert!(reset.body.contains("the key has no counter"), "{key}={value}: {}", reset.body);
            continue;
        }
        assert_eq!([look.status, reset.status], [200, 200], "{key}={value}: {} {}", look.body, reset.body);
        let look: Value = serde_json::from_str(&look.body).expect("JSON");
        assert_eq!(
            (&look["requests_per_unit"], &look["limit"], &look["remaining"]),
            (&json!(admitted), &json!(admitted), &json!(0)),
            "{key}={value}"
        );
        assert!(!ask(&service, "edge", &[(key, value)]), "{key}={value} was reset");
    }
}
