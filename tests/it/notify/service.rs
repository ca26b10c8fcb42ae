//! A process that sends notices: the message, receivers that are away or silent, and settings that cannot be used.

use std::net::{Ipv4Addr, TcpListener};

use futures_util::StreamExt as _;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_stream::wrappers::TcpListenerStream;

use super::receiver::{Receiver, assert_signed, secret_file};
use crate::ledger::service::metric;
use crate::service::traces::acceptor;
use crate::support::certificates::Authority;
use crate::support::grpc::{Rls, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

const RULES: &str = "
domain: api
descriptors:
  - { key: customer, rate_limit: { name: monthly, unit: year, requests_per_unit: 10, algorithm: fixed_window, calendar: Europe/Berlin, notify: [1, 0.8], unit_name: pages } }
  - { key: agent, rate_limit: { name: burst, unit: minute, requests_per_unit: 10, algorithm: gcra, burst: 5, notify: [0.5] } }
  - { key: other, rate_limit: { unit: hour, requests_per_unit: 10 } }
";

fn plan(url: &str, folder: &TempDir) -> Plan {
    Plan::new(RULES).set("notify.url", url).set("notify.secret_file", secret_file(folder.path()))
}

pub(super) fn notices(service: &Ratelimitd, result: &str) -> u64 {
    metric(service, &format!("ratelimitd_notifications_total{{result=\"{result}\"}}"))
}

async fn take(rls: &mut Rls, key: &str, value: &str, times: usize) {
    for _ in 0..times {
        rls.send_one("api", &[(key, value)]).await;
    }
}

#[tokio::test]
async fn a_receiver_gets_each_share_once_and_signed() {
    let (receiver, folder) = (Receiver::start(&["204 No Content"]), TempDir::new().expect("a folder"));
    let service = plan(&receiver.url(), &folder).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    take(&mut rls, "customer", "ac\"me", 12).await;
    take(&mut rls, "agent", "a", 4).await;
    take(&mut rls, "other", "a", 12).await;
    wait::expect("three messages", || receiver.received().len() >= 3);
    let received = receiver.received();
    let mut shares = Vec::new();
    for one in &received {
        assert_signed(one);
        assert_eq!(one.header("content-type"), "application/json");
        assert_eq!(one.header("host"), format!("127.0.0.1:{}", receiver.port()));
        let age = wait::unix_seconds() - one.header("webhook-timestamp").parse::<u64>().expect("a time");
        assert!(age < 60, "{age} s");
        let message = one.message();
        assert_eq!(message["type"], "limit.reached");
        let data = &message["data"];
        shares.push(format!("{} {} {} of {}", data["rule"], data["share"], data["used"], data["limit"]));
    }
    assert_eq!(shares, ["\"monthly\" 0.8 8 of 10", "\"monthly\" 1.0 10 of 10", "\"burst\" 0.5 3 of 5"]);
    let mut ids: Vec<_> = received.iter().map(|one| one.header("webhook-id").to_owned()).collect();
    assert!(ids.iter().all(|id| id.len() == 32), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let (month, agent) = (&received[0].message()["data"], &received[2].message()["data"]);
    assert_eq!(month["entries"], serde_json::json!(["customer=ac\"me"]));
    assert_eq!(
        (&month["unit_name"], &month["mode"], &month["period"]),
        (&"pages".into(), &"enforced".into(), &"1 year".into())
    );
    let ends = month["period_ends"].as_str().expect("a time");
    assert!(ends.ends_with("-01-01T00:00:00+01:00"), "{ends}");
    assert_eq!((&agent["unit_name"], &agent["period"]), (&"requests".into(), &"1 minute".into()));
    assert!(agent.get("period_ends").is_none());
    assert_eq!((notices(&service, "sent"), notices(&service, "failed")), (3, 0));
    let log = service.log_with("a share of a limit is used");
    assert!(!log.contains("ac\"me") && !log.contains("t0ken"), "{log}");
}

#[tokio::test]
async fn a_receiver_that_was_away_or_busy_gets_the_message_with_the_same_id() {
    let folder = TempDir::new().expect("a folder");
    let receiver = Receiver::start(&["503 Service Unavailable\r\nretry-after: 0", "500 Oops", "200 OK"]);
    let service = plan(&receiver.url(), &folder).start();
    take(&mut Rls::connect(service.grpc_port()).await, "customer", "a", 8).await;
    wait::expect("the third attempt", || receiver.received().len() == 3);
    let received = receiver.received();
    for one in &received {
        assert_signed(one);
        assert_eq!(
            (one.header("webhook-id"), &one.body),
            (received[0].header("webhook-id"), &received[0].body)
        );
    }
    wait::expect("it is sent", || notices(&service, "sent") == 1);
    assert_eq!(notices(&service, "failed"), 0);

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    drop(taken);
    let service = plan(&format!("http://{address}/hook?token=t0ken"), &folder).start();
    take(&mut Rls::connect(service.grpc_port()).await, "customer", "b", 10).await;
    service.log_with("a share of a limit is used");
    let receiver = Receiver::start_at(address, &["200 OK"]);
    wait::expect("both shares", || receiver.received().len() == 2);
    wait::expect("both are sent", || notices(&service, "sent") == 2);
}

#[tokio::test]
async fn a_message_that_a_receiver_refuses_is_failed_at_once() {
    let (receiver, folder) = (Receiver::start(&["410 Gone"]), TempDir::new().expect("a folder"));
    let service = plan(&receiver.url(), &folder).start();
    take(&mut Rls::connect(service.grpc_port()).await, "customer", "a", 10).await;
    wait::expect("both shares fail", || notices(&service, "failed") == 2);
    assert_eq!(receiver.received().len(), 2, "no second attempt");
    let log = service.log_with("cannot send a notice");
    assert!(log.contains("410 Gone") && !log.contains("t0ken"), "{log}");
}

/// The queue is full while the receiver does not answer, and no decision waits.
#[tokio::test]
async fn a_receiver_that_never_answers_delays_no_decision() {
    const KEYS: usize = 1_300;
    let (receiver, folder) = (Receiver::start(&[]), TempDir::new().expect("a folder"));
    let service = plan(&receiver.url(), &folder).set("notify.timeout", "1m").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for key in 0..KEYS {
        let keys = [("customer", &*key.to_string())];
        let mut call = request("api", vec![crate::support::grpc::descriptor(&keys)]);
        call.hits_addend = 8;
        let answer = rls.send(call).await.expect("an answer");
        assert_eq!(answer.overall_code, 1, "OK");
    }
    wait::expect("an attempt", || receiver.received().len() == 1);
    let dropped = notices(&service, "dropped");
    assert!((KEYS as u64 - 1_010..=KEYS as u64 - 1_000).contains(&dropped), "{dropped}");
    // Found again by the next request of its key.
    take(&mut rls, "customer", "1299", 1).await;
    assert_eq!(notices(&service, "dropped"), dropped + 1);
    let mut service = service;
    service.terminate();
    assert!(service.wait_exit().success(), "{}", service.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_with_tls_is_trusted_by_the_file_of_authorities() {
    const NAMES: [&str; 1] = ["127.0.0.1"];
    let (authority, other) = (Authority::new(), Authority::new());
    let acceptor = acceptor(&authority.certificate_for(&NAMES));
    let (receiver, folder) = (Receiver::start(&["200 OK"]), TempDir::new().expect("a folder"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}/hook?token=t0ken", listener.local_addr().expect("an address"));
    let relay = TcpListenerStream::new(listener).for_each_concurrent(None, |stream| async {
        // A client that does not trust the certificate ends the handshake.
        if let Ok(mut stream) = acceptor.accept(stream.expect("a connection")).await {
            let port = receiver.port();
            let mut plain = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("the receiver");
            drop(copy_bidirectional(&mut stream, &mut plain).await);
        }
    });
    let check = async {
        for (trusted, sent) in [(&other, 0), (&authority, 1)] {
            let file = trusted.file().display().to_string();
            let service = plan(&url, &folder).set("notify.ca_file", file).start();
            take(&mut Rls::connect(service.grpc_port()).await, "customer", "a", 8).await;
            let done = wait::until_async(wait::PATIENCE, async || {
                let is_told =
                    notices(&service, "sent") == 1 || service.log().contains("cannot send a notice");
                is_told.then_some(())
            });
            assert!(done.await.is_some(), "{}", service.log());
            assert_eq!((notices(&service, "sent"), receiver.received().len() as u64), (sent, sent));
        }
    };
    tokio::select! {
        () = relay => panic!("it has no end"),
        () = check => {}
    }
    assert_signed(&receiver.received()[0]);
}

#[test]
fn settings_that_cannot_be_used_stop_the_process_and_name_the_setting() {
    let folder = TempDir::new().expect("a folder");
    let (good, short) = (secret_file(folder.path()), folder.path().join("short").display().to_string());
    std::fs::write(&short, "whsec_c2hvcnQ=").expect("room for a secret");
    let url = "https://hooks.example.com/a?b=s3cret";
    let table: [(&[(&str, &str)], &str); 6] = [
        (
            &[("notify.url", "ftp://hooks/s3cret")],
            "notify.url: expected http://host:port/path, https://host:port/path, or nothing",
        ),
        (&[("notify.url", "http://u:s3cret@hooks")], "notify.url: expected http://host:port/path"),
        (&[("notify.url", url)], "notify.url: messages are signed: set notify.secret_file"),
        (
            &[("notify.url", url), ("notify.secret_file", "/nowhere/s")],
            "notify.secret_file: /nowhere/s: No such file",
        ),
        (
            &[("notify.url", url), ("notify.secret_file", &short)],
            "short: the first line must have whsec_, then base64 of at least 24 bytes",
        ),
        (
            &[("notify.url", url), ("notify.secret_file", &good), ("notify.ca_file", &good)],
            "notify.ca_file: ",
        ),
    ];
    for (settings, expected) in table {
        let plan = settings.iter().fold(Plan::new(RULES), |plan, (key, value)| plan.set(key, *value));
        let Err(problem) = plan.try_start() else { panic!("it starts with {settings:?}") };
        let problem = format!("{problem:?}");
        assert!(problem.contains(expected) && !problem.contains("s3cret"), "{settings:?}: {problem}");
    }
}
