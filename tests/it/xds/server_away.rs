//! A server that goes and comes back, and answers that do not fit.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{limits, metric, one_rule, plan, rules_page};
use crate::support::ads::AdsServer;
use crate::support::grpc::Rls;
use crate::support::process::Plan;
use crate::support::{http, wait};

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

/// An empty SETTINGS frame, with which a server begins.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A service whose xDS server treats each connection like this; the log and `/readyz` have the `expected` text.
async fn serve<F: Future<Output = ()> + Send>(
    expected: &'static str,
    server: impl Fn(TcpStream) -> F + Send,
) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let accept = async {
        loop {
            server(listener.accept().await.expect("a connection").0).await;
        }
    };
    let plan = Plan::default()
        .set("rules.xds.address", format!("localhost:{port}"))
        .set("rules.xds.backoff.initial", "20ms")
        .set("rules.xds.backoff.max", "20ms")
        .wait_for_livez();
    // Waits for the process and its log, which no task of this runtime may do.
    let check = tokio::task::spawn_blocking(move || {
        let service = plan.start();
        service.log_with(expected);
        wait::expect("the reason", || {
            let page = http::get(service.http_port(), "/readyz", &[]).expect("an answer");
            assert_eq!(page.status, 503);
            page.body.contains("xDS server disconnected: ") && page.body.contains(expected)
        });
    });
    tokio::select! {
        () = accept => unreachable!("it accepts for ever"),
        checked = check => checked.expect("the reason is told"),
    }
}

/// Whether the client has opened its stream.
fn has_headers(read: &[u8]) -> bool {
    const PREFACE_BYTES: usize = 24;
    const HEADERS: u8 = 1;
    let mut frames = read.get(PREFACE_BYTES..).unwrap_or_default();
    while let [a, b, c, kind, ..] = frames {
        let payload = usize::from(*a) * 65_536 + usize::from(*b) * 256 + usize::from(*c);
        if *kind == HEADERS {
            return true;
        }
        frames = frames.get(9 + payload..).unwrap_or_default();
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_http_is_told() {
    // HEADERS of the first stream, with END_STREAM and END_HEADERS: `:status: 404` of HPACK's static table.
    let not_found = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x8D];
    serve("HTTP status code 404", |mut stream| async move {
        // The client may reset the connection at any time, at the end of the test too.
        let _ = stream.write_all(&SETTINGS).await;
        let mut read = Vec::new();
        while !has_headers(&read) {
            if !matches!(stream.read_buf(&mut read).await, Ok(1..)) {
                return;
            }
        }
        let _ = stream.write_all(&not_found).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_at_once_is_told() {
    serve("xDS server disconnected", |stream| async move { drop(stream) }).await;
}
