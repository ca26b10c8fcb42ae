//! A log that cannot be written: it ends nothing, it delays nothing, and the lost lines are counted.

use std::fs::File;
use std::io::{Read as _, Write as _};

use crate::support::grpc::{Code, Rls};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::unwritable::{full_device, pipe, pipe_without_reader};
use crate::support::{http, wait};

const RULES: &str = "
domain: log
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1000000 } }]
";

pub(crate) fn lost_lines(service: &Ratelimitd) -> u64 {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    let lost = metrics.lines().find_map(|line| line.strip_prefix("ratelimitd_log_lines_lost_total "));
    lost.and_then(|lost| lost.parse().ok()).expect("a count of lost lines")
}

async fn survives_a_reload(log: File) {
    let mut service = Plan::new(RULES).set("server.drain", "0s").log_to(log).start();
    let before = lost_lines(&service);
    for limit in ["2000000", "3000000"] {
        let rules = RULES.replace("1000000", limit);
        std::fs::write(service.rules().join("rules.yaml"), rules).expect("a rule file");
        let limits = || http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
        wait::expect("the new limit", || limits().contains(limit));
    }
    wait::expect("the lines about the reloads", || lost_lines(&service) >= before + 2);
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("log", &[("user", "ann")]).await.0, Code::Ok);
    service.terminate();
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_with_the_log_on_a_full_device() {
    survives_a_reload(full_device()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_with_a_log_whose_reader_is_gone() {
    survives_a_reload(pipe_without_reader()).await;
}

#[test]
fn a_start_that_fails_ends_with_its_code_when_the_log_cannot_be_written() {
    for log in [full_device(), pipe_without_reader()] {
        let Err(problem) = Plan::new("domain: ''").log_to(log).try_start() else {
            panic!("the domain is empty");
        };
        assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_reader_stops_reading_delays_no_answer_and_no_exit() {
    let (mut reader, log) = pipe();
    let plan = Plan::new(RULES).set("server.drain", "0s").set("log.level", "trace").log_to(log);
    let mut service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let lost = wait::until_async(wait::PATIENCE, async || {
        for _ in 0..100 {
            assert_eq!(rls.send_one("log", &[("user", "ann")]).await.0, Code::Ok);
        }
        (lost_lines(&service) > 0).then_some(())
    });
    assert!(lost.await.is_some(), "the queue of the log has no bound");
    service.terminate();
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
    drop(service);
    let mut log = String::new();
    reader.read_to_string(&mut log).expect("UTF-8");
    assert!(log.contains(" serving "), "{log}");
}

#[test]
fn a_client_cannot_fill_the_log_with_warnings_of_the_http2_library() {
    // The preface, SETTINGS, a thousand acknowledgements of PINGs that the server has not sent, and a PING.
    const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const ACKNOWLEDGEMENT: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0no  ping";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0the last";
    let mut service = Plan::new(RULES).set("server.drain", "0s").start();
    let mut client = std::net::TcpStream::connect(("127.0.0.1", service.grpc_port())).expect("a connection");
    let frames = [GREETING, &ACKNOWLEDGEMENT.repeat(1_000), PING].concat();
    client.write_all(&frames).expect("an open connection");
    let (mut received, mut buffer) = (Vec::new(), [0; 1_024]);
    while !received.ends_with(b"the last") {
        let length = client.read(&mut buffer).expect("an open connection");
        assert!(length > 0, "the server closed the connection");
        received.extend_from_slice(&buffer[..length]);
    }
    drop(client);
    service.terminate();
    assert!(service.wait_exit().success());
    let log = service.log();
    assert_eq!(log.matches("PING ack that we never sent").count(), 1, "{log}");
}
