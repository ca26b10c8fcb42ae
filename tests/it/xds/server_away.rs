//! A server that goes and comes back, and answers that do not fit.

use super::{limits, metric, one_rule, plan, rules_page};
use crate::support::ads::AdsServer;
use crate::support::grpc::Rls;
use crate::support::wait;

#[tokio::test(flavor = "multi_thread")]
async fn rules_stay_in_force_while_the_server_is_away_and_a_new_stream_names_their_version() {
    let mut server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("7", vec![one_rule("d", 5)]);
    server.expect_ack("7").await;
    // A refused version is not named later.
    server.set("8", vec![one_rule("", 5)]);
    server.expect("refusal", 0, |request| request.error_detail.is_some()).await;

    server.stop().await;
    wait::expect("the loss", || metric(&service, r#"ratelimitd_xds_failures_total{reason="stream"}"#) > 0.0);
    assert_eq!(metric(&service, "ratelimitd_xds_connected"), 0.0);
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("d", &[("user", "ann")]).await.1.limit_remaining, 4);
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=5"]);

    let before = server.received().len();
    server.set("9", vec![one_rule("d", 6)]);
    server.listen().await;
    let first = server.expect("request of a new stream", before, |_| true).await;
    assert_eq!(first.stream, 1);
    assert_eq!((first.request.version_info.as_str(), first.request.response_nonce.as_str()), ("7", ""));
    server.expect_ack("9").await;
    // Not a new counter: ann has used one unit of a limit that has another one now.
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_nothing_new_sends_nothing_on_a_new_stream() {
    let mut server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("7", vec![one_rule("d", 5)]);
    server.expect_ack("7").await;
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("d", &[("user", "ann")]).await.1.limit_remaining, 4);
    server.stop().await;
    let before = server.received().len();
    server.listen().await;
    server.expect("request of a new stream", before, |_| true).await;
    wait::expect("the stream", || rules_page(&service)["xds"]["connected"] == true);
    assert_eq!(server.answers(), 1);
    assert_eq!(rls.send_one("d", &[("user", "ann")]).await.1.limit_remaining, 3, "the counter stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_large_changes_nothing() {
    let server = AdsServer::start().await;
    let service = plan(&server).set("rules.xds.max_message_bytes", 2_048).wait_for_livez().start();
    server.set("1", vec![one_rule("d", 5)]);
    server.expect_ack("1").await;
    server.set("2", vec![one_rule(&"d".repeat(3_000), 5)]);
    let too_large = r#"ratelimitd_xds_failures_total{reason="too_large"}"#;
    wait::expect("the failure", || metric(&service, too_large) > 0.0);
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=5"]);
    server.set("3", vec![one_rule("d", 6)]);
    server.expect_ack("3").await;
    assert_eq!(limits(&service), ["d.user: unit=YEAR n=6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_without_changes_loads_nothing() {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    server.set("1", vec![one_rule("a", 1), one_rule("b", 2)]);
    server.expect_ack("1").await;
    // In another order.
    server.set("2", vec![one_rule("b", 2), one_rule("a", 1)]);
    server.expect_ack("2").await;
    assert_eq!(metric(&service, r#"ratelimitd_rule_loads_total{result="success"}"#), 1.0);
    assert_eq!(metric(&service, r#"ratelimitd_xds_answers_total{result="unchanged"}"#), 1.0);
    assert_eq!(rules_page(&service)["xds"]["version"], "2");
}
