//! The shutdown of a process: every accepted call is answered, and the log has the reason of the exit.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::grpc::{Code, Rls};
use crate::support::process::plan::is_by_tonic;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

pub(crate) const RULES: &str = "
domain: drain
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1000000 } }]
";

fn plan() -> Plan {
    Plan::new(RULES).server_of(module_path!())
}

fn is_ready(service: &Ratelimitd) -> bool {
    http::get(service.http_port(), "/readyz", &[]).is_ok_and(|answer| answer.status == 200)
}

/// A client that stops its calls when the health service reports NOT_SERVING, as Envoy does.
async fn call_until_unhealthy(port: u16, stopped: Arc<AtomicBool>, answered: Arc<AtomicU64>) {
    let mut rls = Rls::connect(port).await;
    while !stopped.load(Ordering::Relaxed) {
        let (code, _) = rls.send_one("drain", &[("user", "u")]).await;
        assert_eq!(code, Code::Ok);
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_a_process_is_replaced() {
    let mut service = plan().set("server.drain", "2s").start();
    let (stopped, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let port = service.grpc_port();
    let calls = (0..16).map(|_| call_until_unhealthy(port, Arc::clone(&stopped), Arc::clone(&answered)));
    let watching = async {
        let channel =
            tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL");
        let mut health = HealthClient::new(channel.connect().await.expect("a connection"));
        while answered.load(Ordering::Relaxed) < 100 {
            tokio::task::yield_now().await;
        }
        service.terminate();
        loop {
            let request = HealthCheckRequest { service: "ratelimit".to_owned() };
            if health.check(request).await.expect("health").into_inner().status() == ServingStatus::NotServing
            {
                break;
            }
        }
        let before = answered.load(Ordering::Relaxed);
        while answered.load(Ordering::Relaxed) < before + 100 {
            tokio::task::yield_now().await;
        }
        assert!(!is_ready(&service), "not ready, but still answers calls");
        assert_eq!(http::get(service.http_port(), "/healthcheck", &[]).expect("an answer").status, 500);
        assert_eq!(http::get(service.http_port(), "/livez", &[]).expect("an answer").status, 200);
        stopped.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all(calls), watching);
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
}

#[test]
fn an_idle_connection_does_not_delay_the_exit() {
    let mut service = plan().set("server.drain", "0s").start();
    // One open connection without data on each port.
    let ports = [service.grpc_port(), service.http_port(), service.admin_port()];
    let mut silent =
        ports.map(|port| std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection"));
    // The server's SETTINGS: from now on a worker serves the connection.
    silent[0].set_read_timeout(Some(wait::PATIENCE)).expect("a socket");
    silent[0].read_exact(&mut [0; 9]).expect("a frame");
    service.terminate();
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
    // tonic's server waits for the preface of a connection until the time for the calls in flight is over.
    let waits = is_by_tonic(module_path!());
    assert_eq!(service.log().contains("still open"), waits, "{}", service.log());
    drop(silent);
}

#[tokio::test]
async fn an_open_stream_does_not_delay_the_exit() {
    let mut service = plan().set("server.drain", "0s").start();
    let address = format!("http://127.0.0.1:{}", service.grpc_port());
    let channel = tonic::transport::Endpoint::from_shared(address).expect("a URL").connect().await;
    let mut health = HealthClient::new(channel.expect("a connection"));
    let request = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(request).await.expect("a stream").into_inner();
    assert_eq!(watch.message().await.expect("a message").map(|health| health.status), Some(1));
    let request = HealthCheckRequest { service: "unknown".to_owned() };
    let mut unknown = health.watch(request).await.expect("a stream").into_inner();
    let service_unknown = unknown.message().await.expect("a message").map(|health| health.status);
    assert_eq!(service_unknown, Some(ServingStatus::ServiceUnknown as i32));
    service.terminate();
    let not_serving = watch.message().await.expect("a message").map(|health| health.status);
    assert_eq!(not_serving, Some(ServingStatus::NotServing as i32));
    let end = watch.message().await.expect_err("the end of the stream");
    assert_eq!(end.code(), tonic::Code::Unavailable, "{end:?}");
    let end = unknown.message().await.expect_err("the end of the stream, with no message before it");
    assert_eq!(end.code(), tonic::Code::Unavailable, "{end:?}");
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
    assert!(!service.log().contains("still open"), "the process waited for the stream: {}", service.log());
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut service = plan().set("server.drain", "1h").start();
    service.terminate();
    wait::expect("draining", || !is_ready(&service));
    // Signals within a second of the first one are the same stop.
    wait::expect("the end", || {
        if !service.has_ended() {
            service.terminate();
        }
        service.has_ended()
    });
    let status = service.wait_exit();
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(service.log().contains("second signal"), "{}", service.log());
}

#[test]
fn a_signal_that_is_repeated_at_once_does_not_cut_the_drain() {
    for signals in [&["TERM", "INT", "TERM"][..], &["TERM", "TERM"]] {
        let mut service = plan().set("server.drain", "2s").start();
        service.signal(signals);
        let status = service.wait_exit();
        assert!(status.success(), "{signals:?}: {status}");
        assert!(service.log().contains("stopped"), "{}", service.log());
    }
}

#[test]
fn signals_that_were_ignored_at_the_start_stop_nothing() {
    let mut service = plan().set("server.drain", "0s").ignore("HUP").ignore("INT").start();
    service.signal(&["HUP", "INT"]);
    assert!(is_ready(&service));
    assert!(!service.log().contains("draining"), "{}", service.log());
    for name in ["SIGHUP", "SIGINT"] {
        service.log_with(&format!("signal={name}"));
    }
    service.terminate();
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
}

/// The text of `EADDRINUSE` in the libc of the service: glibc or musl.
fn address_in_use(log: &str) -> &'static str {
    if log.contains("Address already in use") { "Address already in use" } else { "Address in use" }
}

#[test]
fn a_port_in_use_ends_the_process_with_the_reason() {
    for setting in ["server.grpc.address", "server.http.address", "server.admin.address"] {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address").to_string();
        let Err(problem) = plan().set(setting, address.as_str()).try_start() else {
            panic!("{setting}: the port is in use");
        };
        assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
        let reason = format!("{setting}: cannot listen on {address}: {}", address_in_use(&problem.log));
        assert!(problem.log.contains(&reason), "{problem:?}");
        assert!(problem.log.contains("ratelimitd.yaml:"), "the line of the setting: {problem:?}");
    }
}

#[test]
fn a_port_in_use_names_the_variable_that_chose_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let rules = tempfile::tempdir().expect("a directory");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ratelimitd"))
        .env_clear()
        .env("RUNTIME_ROOT", rules.path())
        .env("RATELIMITD__STORE__KIND", "memory")
        .envs([("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", port.as_str())])
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr);
    let in_use = address_in_use(&log);
    let cause = format!("server.grpc.address: cannot listen on 127.0.0.1:{port}: {in_use}");
    let last = log.lines().last().expect("a line");
    assert!(last.contains(&cause) && last.ends_with("(environment variable GRPC_HOST, GRPC_PORT)"), "{log}");
}

#[test]
fn invalid_rules_end_the_process_with_the_reason() {
    let Err(problem) = Plan::new("domain: ''").try_start() else {
        panic!("the domain is empty");
    };
    assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
    assert!(problem.log.contains("config file cannot have empty domain"), "{problem:?}");
}
