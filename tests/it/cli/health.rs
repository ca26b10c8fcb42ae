//! `health`: the answer of /readyz as an exit code.

use std::process::{Command, Output};

use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

const RULES: &str = "{ domain: d, descriptors: [] }";

/// Exit code, standard output, standard error.
fn health(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitd"))
        .arg("health")
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn url(service: &Ratelimitd) -> String {
    format!("http://127.0.0.1:{}", service.http_port())
}

#[test]
fn a_ready_service_is_healthy_by_url_and_by_settings() {
    let service = Plan::new(RULES).start();
    let ready = (Some(0), "ready\n".to_owned(), String::new());
    assert_eq!(health(&["--address", &url(&service)], &[]), ready);
    // The address on which the service listens: a client calls loopback in its place.
    let listens_on = format!("0.0.0.0:{}", service.http_port());
    assert_eq!(health(&[], &[("RATELIMITD__SERVER__HTTP__ADDRESS", &listens_on)]), ready);
}

#[test]
fn a_draining_service_is_live_but_not_ready() {
    let service = Plan::new(RULES).set("server.drain", "30s").start();
    let address = url(&service);
    service.terminate();
    wait::expect("a draining service is not ready", || health(&["--address", &address], &[]).0 == Some(1));
    let (_, answer, error) = health(&["--address", &address], &[]);
    assert_eq!(answer, "");
    assert!(error.starts_with("ratelimitd health: 503 Service Unavailable: not ready: "), "{error}");
    assert_eq!(health(&["--address", &address, "--live"], &[]), (Some(0), "ok\n".to_owned(), String::new()));
}

#[test]
fn no_service_and_bad_settings_are_errors() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", unused.local_addr().expect("an address"));
    // Connects, but nothing answers.
    let (code, _, error) = health(&["--address", &address, "--timeout", "50ms"], &[]);
    assert_eq!(
        (code, error),
        (Some(1), format!("ratelimitd health: no answer from {address}/readyz in time\n"))
    );
    drop(unused);
    let (code, _, error) = health(&["--address", &address], &[]);
    assert_eq!(code, Some(1));
    assert!(error.contains("no answer from") && error.contains("refused"), "{error}");
    let (code, _, error) = health(&[], &[("RATELIMITD__SERVER__HTTP__ADDRESS", "nowhere")]);
    assert_eq!(code, Some(1));
    assert!(error.contains("server.http.address"), "{error}");
}
