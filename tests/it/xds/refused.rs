//! Answers that are refused.

use std::time::Duration;

use envoy_types::pb::google::protobuf::Any;
use serde_json::json;

use super::resource::from_bytes;
use super::{limits, metric, one_rule, plan, rules_page};
use crate::support::ads::{AdsServer, TYPE_URL};
use crate::support::{http, wait};

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_answer_changes_nothing_and_is_told_everywhere() {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
    server.set("2", vec![one_rule("good", 5), one_rule("", 5)]);
    let refused = server.expect("refusal", 0, |request| request.error_detail.is_some()).await.request;
    let reason = "resource 2: config file cannot have empty domain";
    assert_eq!(refused.error_detail.map(|detail| detail.message).as_deref(), Some(reason));
    assert_eq!(refused.version_info, "1");
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=5"]);

    let page = rules_page(&service);
    assert_eq!(page["in_force"], false);
    assert_eq!(page["last_error"]["problems"], json!([reason]));
    assert_eq!(page["xds"]["refused"], json!({"version": "2", "reason": reason}));
    service.log_with(reason);
    assert_eq!(metric(&service, r#"ratelimitd_rule_loads_total{result="failure"}"#), 1.0);

    // The rules in force again, under a new version: nothing is loaded, and the error is over.
    server.set("3", vec![one_rule("d", 5)]);
    server.expect_ack("3").await;
    let page = rules_page(&service);
    assert_eq!((&page["in_force"], &page["last_error"]), (&json!(true), &json!(null)));
    assert_eq!((&page["xds"]["refused"], &page["xds"]["version"]), (&json!(null), &json!("3")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_a_refused_answer_again_at_once_is_slowed_down() {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("1", vec![one_rule("", 5)]);
    let refusals = || server.received().into_iter().filter(|it| it.request.error_detail.is_some());
    wait::until_async(wait::PATIENCE, async || (refusals().count() >= 4).then_some(()))
        .await
        .expect("refusals");
    let times: Vec<_> = refusals().map(|received| received.at).collect();
    // The pauses of pace.rs, less the time that a refusal takes to arrive.
    for (pair, least_ms) in times.windows(2).zip([450, 900, 1_800]) {
        assert!(pair[1] - pair[0] > Duration::from_millis(least_ms), "{times:?}");
    }
    // It is checked and logged once.
    assert_eq!(metric(&service, r#"ratelimitd_rule_loads_total{result="failure"}"#), 1.0);
    assert_eq!(service.log_with("rejected xDS response").matches("rejected xDS response").count(), 1);
    assert_eq!(metric(&service, "ratelimitd_xds_nacks_total"), 4.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_type_is_refused_and_logged_once() {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
    // The same resources: only the type of the answer is wrong.
    server.set_of_type("2", "type.googleapis.com/envoy.config.cluster.v3.Cluster", vec![one_rule("d", 5)]);
    let refusals = || server.received().into_iter().filter(|it| it.request.error_detail.is_some());
    wait::until_async(wait::PATIENCE, async || (refusals().count() >= 2).then_some(()))
        .await
        .expect("refusals");
    let reason = "the answer is of type \"type.googleapis.com/envoy.config.cluster.v3.Cluster\"";
    let told = refusals().next().and_then(|received| received.request.error_detail);
    assert_eq!(told.map(|detail| detail.message).as_deref(), Some(reason));
    assert_eq!(service.log_with("rejected xDS response").matches("rejected xDS response").count(), 1);
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=5"]);
    server.set("3", vec![one_rule("d", 6)]);
    server.expect_ack("3").await;
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_may_share_a_domain_if_the_settings_say_so() {
    let server = AdsServer::start().await;
    let service = plan(&server).set("rules.merge_domains", true).wait_for_livez().start();
    let part = |name: &str, key: &str| {
        let limit = json!({"unit": "HOUR", "requests_per_unit": 1});
        let descriptors = json!([{"key": key, "rate_limit": limit}]);
        super::resource(&json!({"name": name, "domain": "d", "descriptors": descriptors}))
    };
    server.set("1", vec![part("n2", "z"), part("n1", "k")]);
    server.expect_ack("1").await;
    assert_eq!(limits(&service), ["d.k: unit=HOUR n=1", "d.z: unit=HOUR n=1"]);
    assert_eq!(rules_page(&service)["documents"], json!({"d": ["n1", "n2"]}));
}

/// Memory that a process has taken at most while it met this answer, in MiB.
async fn peak_growth_mib(resources: Vec<Any>, end: &str) -> u64 {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
    let before = service.peak_memory_kib();
    server.set("2", resources);
    service.log_with(end);
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=5"]);
    (service.peak_memory_kib() - before) / 1_024
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_empty_messages_takes_less_than_a_gigabyte() {
    // Each takes two bytes. The largest answer has 4 MiB; a fourth of it must take less than a fourth of a gigabyte.
    let fourth = (1 << 20) / 2;
    let descriptors = |count| vec![from_bytes(TYPE_URL, [3_u8 << 3 | 2, 0].repeat(count))];
    let table = [
        ("resources", vec![Any::default(); fourth], "rejected xDS response", 256),
        ("descriptors", descriptors(fourth), "rejected xDS response", 256),
        ("a message above 4 MiB", descriptors(4 * fourth), "message length too large", 20),
    ];
    for (name, resources, end, most_mib) in table {
        let grown = peak_growth_mib(resources, end).await;
        assert!(grown < most_mib, "{name}: {grown} MiB");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_answer_of_keys_takes_less_than_a_gigabyte() {
    // As many descriptors of a one-letter key as fit.
    let keys = b"\x1a\x03\x0a\x01k".repeat(((4 << 20) - 1_024) / 5);
    let grown = peak_growth_mib(vec![from_bytes(TYPE_URL, keys)], "rejected xDS response").await;
    assert!(grown < 600, "{grown} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_of_the_server_is_no_line_of_the_log() {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    let forged = "2026-11-24T00:00:00.000000Z  INFO ratelimitd::app::run: FORGED";
    server.set("1", vec![super::resource(&json!({"name": format!("n\n{forged}"), "domain": ""}))]);
    service.log_with("config file cannot have empty domain");
    server.set_of_type("2", &format!("type\n{forged}"), Vec::new());
    let log = service.log_with("the answer is of type");
    let of_name = format!(r"error=n\n{forged}: config file cannot have empty domain");
    assert!(log.contains(&of_name), "{log}");
    assert!(!log.lines().any(|line| line.trim_start().starts_with(forged)), "{log}");
    let reasons = http::get(service.http_port(), "/readyz", &[]).expect("an answer").body;
    assert!(!reasons.lines().any(|line| line.starts_with(forged)), "{reasons}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_do_not_wait_for_requests_are_read_ten_a_second() {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    let first = server.expect_ack("1").await.at;
    // Each version changes the rules, and is acknowledged as soon as it is in force.
    for version in 2..=11 {
        server.set(&version.to_string(), vec![one_rule("d", version)]);
        server.expect_ack(&version.to_string()).await;
    }
    let last = server.expect_ack("11").await.at;
    assert!(last - first > Duration::from_millis(900), "{:?}", last - first);
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=11"]);
}
