//! The start: with and without rules, and its end while it waits.

use serde_json::json;

use super::{metric, one_rule, plan, rules_page};
use crate::support::ads::AdsServer;
use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

fn get(service: &Ratelimitd, path: &str) -> (u16, String) {
    let response = http::get(service.http_port(), path, &[]).expect("an answer");
    (response.status, response.body)
}

/// The gRPC code and text of a call that fails.
async fn failure(service: &Ratelimitd) -> (tonic::Code, String) {
    let mut rls = Rls::connect(service.grpc_port()).await;
    let status = rls.send(request("d", vec![descriptor(&[("user", "ann")])])).await.expect_err("no rules");
    (status.code(), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_waits_for_a_server_that_comes_late() {
    let mut server = AdsServer::new();
    let service = plan(&server).wait_for_livez().start();
    let (status, text) = get(&service, "/readyz");
    assert_eq!(status, 503);
    assert!(text.starts_with("not ready: no rate limit configuration loaded"), "{text}");
    assert_eq!(get(&service, "/healthcheck").0, 500);
    let no_rules = "no rate limit configuration loaded".to_owned();
    assert_eq!(failure(&service).await, (tonic::Code::Unavailable, no_rules.clone()));
    let json = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
    let stream = http::connect(service.http_port()).expect("the HTTP port");
    let response =
        http::exchange(stream, &["POST /json HTTP/1.1", "host: localhost"], json).expect("an answer");
    assert_eq!((response.status, response.body), (503, format!("{no_rules}\n")));
    wait::expect("failed attempts", || {
        metric(&service, r#"ratelimitd_xds_failures_total{reason="connect"}"#) > 2.0
    });
    wait::expect("the reason", || {
        get(&service, "/readyz").1.contains("loaded (xDS server disconnected: no connection: ")
    });
    let page = rules_page(&service);
    assert_eq!(
        (&page["source"], &page["in_force"], &page["loaded_at"]),
        (&json!("xds"), &json!(false), &json!(null))
    );
    assert_eq!(page["xds"]["connected"], false);
    assert!(
        page["xds"]["last_fault"]["reason"].as_str().is_some_and(|reason| reason.contains("refused")),
        "{page}"
    );

    server.listen().await;
    // It has no snapshot yet, and sends nothing.
    server.expect("first request", 0, |_| true).await;
    wait::expect("the reason", || {
        let expected = "not ready: no rate limit configuration loaded (the xDS server has sent none yet)\n";
        get(&service, "/readyz") == (503, expected.to_owned())
    });
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
    assert_eq!(get(&service, "/readyz").0, 200);
    assert_eq!(get(&service, "/healthcheck"), (200, "OK".to_owned()));
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("d", &[("user", "ann")]).await.1.limit_remaining, 4);
    assert_eq!(
        rls.send_one("other", &[("user", "ann")]).await.0,
        Code::Ok,
        "an unknown domain is no error now"
    );
    let page = rules_page(&service);
    assert_eq!(page["documents"], json!({"d": ["d"]}));
    assert_eq!((&page["xds"]["version"], &page["resources"]), (&json!("1"), &json!(1)));
    assert_eq!(metric(&service, r#"ratelimitd_rules_source_info{source="xds"}"#), 1.0);
    assert_eq!(metric(&service, "ratelimitd_xds_connected"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_may_be_ready_before_it_has_rules() {
    let server = AdsServer::start().await;
    // `start` waits for /readyz.
    let service = plan(&server).set("rules.xds.start_without_rules", true).start();
    assert_eq!(get(&service, "/healthcheck").0, 200);
    assert_eq!(failure(&service).await.1, "no rate limit configuration loaded");
    assert_eq!(metric(&service, r#"ratelimitd_request_errors_total{kind="no_rules",transport="grpc"}"#), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_requires_a_domain_is_ready_only_with_one() {
    let server = AdsServer::start().await;
    let service = plan(&server)
        .set("rules.xds.start_without_rules", true)
        .set("rules.require_domain", true)
        .wait_for_livez()
        .start();
    assert_eq!(get(&service, "/readyz"), (503, "not ready: the active rules have no domain\n".to_owned()));
    for (version, domains, status) in [("1", 0, 503), ("2", 1, 200), ("3", 0, 503), ("4", 1, 200)] {
        server.set(version, (0..domains).map(|_| one_rule("d", 1)).collect());
        server.expect_ack(version).await;
        assert_eq!(get(&service, "/readyz").0, status, "version {version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_a_process_that_waits() {
    let silent = AdsServer::start().await;
    for server in [AdsServer::new(), silent] {
        let mut service = plan(&server).set("rules.xds.backoff.initial", "200ms").wait_for_livez().start();
        service.terminate();
        assert!(service.wait_exit().success());
    }
}

#[test]
fn two_sources_of_rules_are_refused() {
    let plan = Plan::new("domain: d").env("RULES__XDS__ADDRESS", "localhost:18000");
    let Err(problem) = plan.try_start() else { panic!("two sources") };
    let told = "rules.path: the rules come from rules.xds.address; set only one of the two";
    assert!(problem.log.contains(told), "{problem:?}");
}
