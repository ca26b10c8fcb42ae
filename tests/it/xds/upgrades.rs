//! Upgrades: the table of the settings over rules of files and of an xDS server.

use serde_json::{Value, json};

use super::{plan, rules_page};
use crate::support::ads::AdsServer;
use crate::support::grpc::{Code, Rls};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::xds::resource::resource;

/// `/rlconfig` of the admin port, sorted.
fn rlconfig(service: &Ratelimitd) -> Vec<String> {
    let body = http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
    let mut lines: Vec<String> = body.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn table() -> Value {
    json!([
        {"domain": "eg/*", "path": "route.user", "algorithm": "gcra", "burst": 2},
        {"domain": "eg/*", "limit_name": "odd", "burst": 7},
        {"domain": "eg/*", "path": "tokens", "algorithm": "sliding_window", "reserve": 3},
        {"domain": "eg/*", "path": "postpaid", "reserve": 3},
        {"domain": "eg/*", "shadow_mode": true, "on_store_failure": "local"},
        {"domain": "none", "charging": "prepaid"},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_row_that_matches_changes_rules_by_xds() {
    let server = AdsServer::start().await;
    let service = plan(&server).set("upgrades", table()).wait_for_livez().start();
    let limit = json!({"unit": "YEAR", "requests_per_unit": 4});
    let named = json!({"unit": "YEAR", "requests_per_unit": 5, "name": "odd"});
    let descriptors = json!([
        {"key": "route", "descriptors": [{"key": "user", "rate_limit": limit}]},
        {"key": "named", "rate_limit": named},
        {"key": "tokens", "rate_limit": limit},
        {"key": "postpaid", "rate_limit": limit},
        {"key": "other", "rate_limit": limit},
        {"key": "free", "rate_limit": {"unlimited": true}},
    ]);
    let rules =
        |domain: &str| resource(&json!({"name": domain, "domain": domain, "descriptors": descriptors}));
    server.set("1", vec![rules("eg/http")]);
    server.expect_ack("1").await;
    let off = "shadow_mode: false, quota_mode: false";
    let on = "shadow_mode: true, quota_mode: false";
    assert_eq!(
        rlconfig(&service),
        [
            format!("eg/http.free: unit=UNKNOWN requests_per_unit=0, {off}"),
            // A window has no burst: the row is not applied.
            format!("eg/http.named: unit=YEAR requests_per_unit=5, {off}"),
            format!("eg/http.other: unit=YEAR requests_per_unit=4, {on}, on_store_failure: local"),
            // Without an algorithm the limit is postpaid: the row is not applied.
            format!("eg/http.postpaid: unit=YEAR requests_per_unit=4, {off}"),
            format!(
                "eg/http.route.user: unit=YEAR requests_per_unit=4, {off}, algorithm: gcra, burst: 2, charging: prepaid"
            ),
            format!(
                "eg/http.tokens: unit=YEAR requests_per_unit=4, {off}, algorithm: sliding_window, charging: prepaid, reserve: 3"
            ),
        ]
    );
    let page = rules_page(&service);
    let first = "eg/http.route.user: from upgrades[0] of the settings: algorithm, burst";
    assert_eq!(page["upgrades"][0], json!({"row": "upgrades[0]", "limits": 1, "first": [first]}));
    assert_eq!(page["upgrades"][1]["limits"], 0);
    let reserves = "eg/http.tokens: from upgrades[2] of the settings: algorithm, reserve";
    assert_eq!(page["upgrades"][2], json!({"row": "upgrades[2]", "limits": 1, "first": [reserves]}));
    assert_eq!((&page["upgrades"][3]["limits"], &page["upgrades"][5]["limits"]), (&json!(0), &json!(0)));
    let postpaid = "eg/http: warning: upgrades[3] of the settings is not applied: reserve needs charging: prepaid, but \
                    this limit is postpaid (at descriptors[3].rate_limit)";
    let warning = "eg/http: warning: upgrades[1] of the settings is not applied: fixed_window does not take \
                   a burst (at descriptors[1].rate_limit)";
    assert_eq!(page["warnings"], json!([warning, postpaid]));

    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        codes.push(rls.send_one("eg/http", &[("route", "r"), ("user", "ann")]).await.0);
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit], "a burst of two");
    for _ in 0..6 {
        assert_eq!(rls.send_one("eg/http", &[("other", "x")]).await.0, Code::Ok, "shadow mode");
    }
}

#[test]
fn a_row_wins_over_a_rule_file_and_explain_says_so() {
    let rules = "
domain: eg/http
descriptors:
  - key: route
    rate_limit: { unit: minute, requests_per_unit: 5, algorithm: sliding_log, on_store_failure: deny }
";
    let table = r#"[{path: "route", algorithm: gcra, burst: 3, charging: postpaid}]"#;
    let service = Plan::new(rules).env("UPGRADES", table).start();
    let expected = "eg/http.route: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false, \
                    algorithm: gcra, burst: 3, on_store_failure: deny";
    assert_eq!(rlconfig(&service), [expected]);

    let path = service.rules().join("rules.yaml");
    let explained = std::process::Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["explain", "--domain", "eg/http", "--rules"])
        .arg(path)
        .arg("route=a")
        .env("RATELIMITD__UPGRADES", table)
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&explained.stdout);
    let line = "    upgraded          from upgrades[0] of the settings: algorithm, burst, charging";
    assert!(text.lines().any(|found| found == line), "{text}");
    assert!(text.contains("    algorithm         gcra"), "{text}");
}
