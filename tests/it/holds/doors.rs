//! `/holds` with the counters in memory.

use serde_json::{Value, json};

use crate::service::usage::send;
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: llm
descriptors:
  - { key: tenant, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window } }
";

fn hold(units: u64, more: &Value) -> Value {
    let entries = json!([{"key": "tenant", "value": "acme"}]);
    let mut body = json!({"domain": "llm", "descriptors": [{"entries": entries, "hitsAddend": units}]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn post(service: &Ratelimitd, path: &str, body: &Value) -> (u16, Value) {
    let answer = send(service.http_port(), path, body, None);
    (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body)))
}

#[test]
fn an_estimate_is_reserved_and_its_real_cost_committed_once() {
    let service = Plan::new(RULES).set("response.dynamic_metadata", true).start();
    let (status, reserved) = post(&service, "/holds", &hold(400, &json!({"ttl": "30m"})));
    assert_eq!((status, &reserved["overallCode"]), (200, &json!("OK")));
    assert_eq!(reserved["statuses"][0]["limitRemaining"], 600);
    assert!(reserved["expires"].as_str().is_some_and(|end| end.ends_with('Z')), "{reserved}");
    assert_eq!(reserved["dynamicMetadata"].get("receipt"), None, "the id alone settles: {reserved}");
    let commit = |units| post(&service, "/holds/commit", &hold(units, &json!({"id": reserved["id"]})));
    let (status, settled) = commit(150);
    assert_eq!((status, &settled["result"]), (200, &json!("settled")));
    assert_eq!(settled["statuses"][0]["limitRemaining"], 850);
    assert_eq!(commit(900), (200, json!({"result": "already"})));
    let (status, denied) = post(&service, "/holds", &hold(851, &json!({})));
    assert_eq!((status, &denied["overallCode"], denied.get("id")), (429, &json!("OVER_LIMIT"), None));
    assert_eq!(service.left("llm", ("tenant", "acme")), 850);
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    for (op, result, count) in [
        ("reserve", "ok", 1),
        ("reserve", "over_limit", 1),
        ("reserve", "error", 0),
        ("commit", "settled", 1),
        ("commit", "already", 1),
        ("commit", "expired", 0),
        ("commit", "lost", 0),
        ("commit", "error", 0),
    ] {
        let line = format!("ratelimitd_holds_total{{op=\"{op}\",result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[test]
fn a_request_that_is_no_hold_is_refused_and_books_nothing() {
    let service = Ratelimitd::start(RULES);
    let negative = json!({"domain": "llm", "descriptors": [{"entries": [{"key": "tenant", "value": "acme"}],
        "hitsAddend": 1, "isNegativeHits": true}]});
    let receipt = json!({"domain": "llm", "descriptors": [{"entries": [{"key": "tenant", "value": "acme"},
        {"key": "ratelimitd_receipt", "value": "1.z"}], "hitsAddend": 1}]});
    let ended = format!("h1.{}.1.z", "9".repeat(12));
    let table = [
        ("/holds", hold(1, &json!({"ttl": "0s"})), "from 1s to 24h"),
        ("/holds", hold(1, &json!({"ttl": "25h"})), "from 1s to 24h"),
        ("/holds", hold(1, &json!({"ttl": "soon"})), "from 1s to 24h"),
        ("/holds", hold(1, &json!({"id": "x"})), "and /holds makes it"),
        ("/holds", hold(1, &json!({"name": "x"})), "unknown field"),
        ("/holds", json!({"domain": "llm"}), "must not be empty"),
        ("/holds", negative, "no negative hits"),
        ("/holds", receipt, "neither a receipt"),
        ("/holds", json!([]), "an object"),
        ("/holds/commit", hold(1, &json!({})), "need the 'id'"),
        ("/holds/commit", hold(1, &json!({"id": "abc"})), "the id cannot be read"),
        ("/holds/commit", hold(1, &json!({"id": ended})), "the id cannot be read"),
    ];
    for (path, body, reason) in table {
        let (status, text) = post(&service, path, &body);
        assert_eq!(status, 400, "{path} {body}: {text}");
        assert!(text.as_str().is_some_and(|text| text.contains(reason)), "{path} {body}: {text}");
    }
    assert_eq!(
        post(&service, "/holds/commit", &hold(7, &json!({"id": "h1.1.1.z"}))),
        (200, json!({"result": "expired"}))
    );
    for ttl in ["1s", "24h"] {
        assert_eq!(post(&service, "/holds", &hold(0, &json!({"ttl": ttl}))).0, 200, "{ttl}");
    }
    assert_eq!(service.left("llm", ("tenant", "acme")), 1_000);
    let long = hold(1, &json!({"id": "x".repeat(256 * 1024)}));
    assert_eq!(post(&service, "/holds/commit", &long).0, 413);
    let page = http::get(service.http_port(), "/holds", &[]).expect("an answer");
    assert_eq!(page.status, 405);
}

#[test]
fn a_hold_without_a_limit_is_admitted_and_settled() {
    let service = Ratelimitd::start(RULES);
    let other = |more: &Value| {
        let mut body = hold(5, more);
        body["domain"] = json!("unknown");
        body
    };
    let (status, reserved) = post(&service, "/holds", &other(&json!({})));
    assert_eq!(status, 200, "{reserved}");
    let (status, settled) = post(&service, "/holds/commit", &other(&json!({"id": reserved["id"]})));
    assert_eq!((status, &settled["result"]), (200, &json!("settled")));
}

/// A commit that cannot be planned leaves the hold open.
#[test]
fn a_refused_commit_can_be_corrected() {
    let service = Plan::new(RULES).set("defaults.algorithm", "sliding_log").start();
    let (_, reserved) = post(&service, "/holds", &hold(400, &json!({})));
    let mut refused = hold(5, &json!({"id": reserved["id"]}));
    refused["descriptors"][0]["limit"] = json!({"requestsPerUnit": 10_001, "unit": "YEAR"});
    let (status, error) = post(&service, "/holds/commit", &refused);
    assert_eq!(status, 400, "a log of 10,001 units: {error}");
    let (status, settled) = post(&service, "/holds/commit", &hold(5, &json!({"id": reserved["id"]})));
    assert_eq!((status, &settled["result"]), (200, &json!("settled")));
    assert_eq!(service.left("llm", ("tenant", "acme")), 995);
}

/// With tokens and slots in one rule, an id renews and releases the slot, and settles the tokens.
#[test]
fn a_hold_takes_a_slot_until_it_is_committed() {
    const RULES: &str = "
domain: llm
descriptors:
  - key: tenant
    rate_limits:
      - { name: jobs, unit: hour, requests_per_unit: 1, algorithm: concurrency }
      - { name: tokens, unit: year, requests_per_unit: 1000, algorithm: fixed_window, charging: prepaid }
";
    let service = Plan::new(RULES).start();
    let (status, first) = post(&service, "/holds", &hold(400, &json!({})));
    assert_eq!(status, 200, "{first}");
    let (status, denied) = post(&service, "/holds", &hold(1, &json!({})));
    assert_eq!(status, 429, "{denied}");
    let of_first = |path, units| post(&service, path, &hold(units, &json!({"id": first["id"]})));
    assert_eq!(of_first("/holds/renew", 0).0, 200);
    assert_eq!(of_first("/holds/commit", 150).1["result"], "settled");
    assert_eq!(service.left("llm", ("tenant", "acme")), 850);
    let ended = "Bad Request: the hold has ended or is committed, so its slots are not renewed\n";
    assert_eq!(of_first("/holds/renew", 0), (400, json!(ended)), "a committed hold takes no slot again");
    let (status, second) = post(&service, "/holds", &hold(400, &json!({})));
    assert_eq!(status, 200, "the slot is free: {second}");
    let reset =
        json!({"domain": "llm", "limit_name": "jobs", "descriptors": hold(0, &json!({}))["descriptors"]});
    assert_eq!(send(service.admin_port(), "/counters/reset", &reset, None).status, 200);
    let (status, third) = post(&service, "/holds", &hold(400, &json!({})));
    assert_eq!(status, 200, "the reset has freed the slot: {third}");
    let (status, lost) = post(&service, "/holds/renew", &hold(0, &json!({"id": second["id"]})));
    assert_eq!((status, &lost["overallCode"]), (429, &json!("OVER_LIMIT")), "the third has the slot");
    let (status, error) = post(&service, "/holds/renew", &hold(0, &json!({"id": "abc"})));
    assert_eq!(status, 400, "{error}");
}
