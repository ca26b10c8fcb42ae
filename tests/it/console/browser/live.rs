//! What the page shows of a running service, and what it asks the service for.

use serde_json::{Value, json};

use super::super::{RULES, ask, state, state_with, sum};
use super::{click, has_text, open};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, wait};

/// 700 of 1,000 are admitted.
const DENIES_300: &str = "
domain: edge
descriptors:
  - { key: tenant, rate_limit: { unit: day, requests_per_unit: 700, algorithm: fixed_window } }
";

#[test]
fn the_numbers_are_those_of_the_state_and_of_the_metrics() {
    let service = Ratelimitd::start(DENIES_300);
    let denied = (0..1_000).filter(|_| ask(&service, "edge", &[("tenant", "acme-corp")])).count();
    assert_eq!(denied, 300);
    let state = state_with(&service, "all requests", |state| sum(state, "requests") == 1_000);
    assert_eq!(["denied", "failed", "policy"].map(|series| sum(&state, series)), [300, 0, 0]);
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    for line in
        ["ratelimitd_requests_total{result=\"denied\"} 300", "ratelimitd_requests_total{result=\"ok\"} 700"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    let mut browser = open(&service);
    browser.wait_until(&has_text("#tiles > div:nth-child(1)", "1,000 in 15 min"));
    browser.wait_until(&has_text("#rule-table tbody tr:nth-child(1)", "edge.tenant"));
    let cells = browser.texts("#rule-table tbody tr:nth-child(1) > *");
    assert_eq!((cells[1].as_str(), cells[6].as_str()), ("700 per dayfixed_window", "300"), "{cells:?}");
    assert_eq!(cells.len(), 8, "{cells:?}");
    let cells = browser.texts("#key-table tbody tr:nth-child(1) > *");
    assert!(cells[0].starts_with("tenant=ac…#") && cells[0].ends_with("edge.tenant"), "{cells:?}");
    assert_eq!(cells[3], "≥ 300", "{cells:?}");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn a_denial_is_on_the_page_within_two_seconds_and_a_reload_is_a_mark() {
    let service = Ratelimitd::start(RULES);
    let mut browser = open(&service);
    browser.wait_until(&has_text("#verdict", "No requests."));
    ask(&service, "edge", &[("user", "ann@example.org")]);
    let denied_at = wait::unix_seconds();
    assert!(ask(&service, "edge", &[("user", "ann@example.org")]));
    browser.wait_until(&has_text("#verdict", "requests/s are denied"));
    assert!(wait::unix_seconds() - denied_at <= 2);
    browser.wait_until(&has_text("#rule-table tbody", "per-user"));
    let since = browser.texts("#rule-table tbody tr:nth-child(1) > *").remove(7);
    let clock = |seconds: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        humantime::format_rfc3339_seconds(time).to_string()[11..19].to_owned()
    };
    let around = [denied_at - 1, denied_at, denied_at + 1].map(clock);
    assert!(around.contains(&since), "{since} is not in {around:?}");

    let rules = RULES.replace("requests_per_unit: 5", "requests_per_unit: 6");
    std::fs::write(service.rules().join("rules.yaml"), rules).expect("a rule file");
    browser.wait_until(&has_text("#chart text", "new rules"));
    browser.wait_until(&has_text("#in-force", "changed 1 time since startup"));
    let marks = state(&service)["marks"].clone();
    assert!(wait::unix_seconds() - marks[0]["at"].as_u64().expect("a time") <= 10, "{marks}");
}

#[test]
fn the_page_asks_its_own_service_for_nothing_but_its_data() {
    let service = Ratelimitd::start(RULES);
    ask(&service, "edge", &[("user", "ann")]);
    let mut browser = open(&service);
    click(&mut browser, "#tabs [data-key=idle]");
    browser.wait_until(&has_text("#rule-table tbody", "edge.tenant.path_/search"));
    let clock = browser.texts("#about").remove(0);
    browser.wait_until(&format!("!({})", has_text("#about", &clock)));
    let sent = browser.events("Network.requestWillBeSent");
    let base = format!("http://localhost:{}/console", service.admin_port());
    let mut addresses: Vec<&str> = sent
        .iter()
        .map(|sent| sent["request"]["url"].as_str().expect("an address"))
        .map(|address| address.strip_prefix(&base).unwrap_or(address))
        .collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["", "/events", "/state?rules=all"]);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);

    let violation = |cause: &str| {
        format!(
            "new Promise((resolve) => {{
                document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
                try {{ {cause} }} catch {{}}
            }})"
        )
    };
    let other = violation("fetch('http://127.0.0.1:9/').catch(() => {});");
    assert_eq!(browser.evaluate(&other), "connect-src");
    let markup = violation("document.body.innerHTML = '<b>';");
    assert_eq!(browser.evaluate(&markup), "require-trusted-types-for");
}

#[test]
fn the_page_says_how_many_instances_are_live_and_which_have_other_rules() {
    let redis = Redis::start();
    let [a, b] = [(); 2].map(|()| Plan::new(RULES).redis(&redis.url()).start());
    let mut browser = open(&a);
    browser.wait_until(&has_text("#fleet", "2 instances, all with these rules"));
    let newer = RULES.replace("requests_per_unit: 5", "requests_per_unit: 6");
    std::fs::write(b.rules().join("rules.yaml"), &newer).expect("a rule file");
    browser.wait_until(&has_text("#fleet", "2 instances, 1 with other rules: "));
    let fleet = http::get(a.admin_port(), "/fleet", &[]).expect("an answer").body;
    let fleet: Value = serde_json::from_str(&fleet).expect("JSON");
    let other = fleet["instances"][1]["name"].as_str().expect("a name").to_owned();
    assert_eq!(browser.texts("#fleet"), [format!("2 instances, 1 with other rules: {other}")]);
    std::fs::write(a.rules().join("rules.yaml"), &newer).expect("a rule file");
    browser.wait_until(&has_text("#fleet", "2 instances, all with these rules"));
    drop(b);
    browser.wait_until(&has_text("#fleet", "1 instance"));
    drop(redis);
    browser.wait_until("document.querySelector('#fleet').textContent === ''");
    let alone = Ratelimitd::start(RULES);
    assert_eq!(open(&alone).texts("#fleet"), [""]);
}

#[test]
fn a_request_is_explained_and_its_counter_is_shown() {
    let service = Ratelimitd::start(RULES);
    let mut browser = open(&service);
    let fill = |domain: &str, entries: &str| {
        format!(
            "(() => {{
                const form = document.querySelector('#ask');
                form.elements.domain.value = '{domain}';
                form.elements.entries.value = '{entries}';
                form.requestSubmit();
            }})()"
        )
    };
    browser.evaluate(&fill("edge", "tenant=a\\\\,b,path=/search"));
    browser.wait_until(&has_text("#answer", "0 of 5 used, a request now is OK"));
    browser.wait_until(&has_text("#answer pre", "tenant=a,b"));
    let command = browser.texts("#answer .note code").remove(0);
    assert_eq!(command, r"ratelimitctl counters show --domain 'edge' 'tenant=a\,b,path=/search'");
    browser.evaluate(&fill("edge", "usr=ann"));
    browser.wait_until(&has_text("#answer", "no counted limit in domain \"edge\""));
    assert_eq!(sum(&state(&service), "requests"), 0, "nothing was charged");
    assert_eq!(
        json!(browser.complaints().len()),
        json!(1),
        "Chromium reports the answer 404: {:?}",
        browser.complaints()
    );
}
