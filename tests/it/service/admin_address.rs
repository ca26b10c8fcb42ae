//! The admin port on a Unix socket, and without an admin port.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::http::{self, Response, connect, exchange};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

const RULES: &str = "
domain: web
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 3, name: per-user } }]
";

/// A plan whose admin port is a Unix socket in the folder, and the path of the socket.
fn with_socket(folder: &TempDir) -> (Plan, PathBuf) {
    let path = folder.path().join("admin.sock");
    (Plan::new(RULES).set("server.admin.address", format!("unix:{}", path.display())), path)
}

fn get_over(path: &Path, lines: &[&str]) -> Response {
    exchange(UnixStream::connect(path).expect("a connection"), lines, "").expect("an answer")
}

fn counters(admin: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["counters", "show", "--admin", admin, "--domain", "web", "user=ann"])
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_admin_port_can_be_switched_off() {
    let service = Plan::new(RULES).set("server.admin.address", "off").start();
    assert!(connect(service.admin_port()).is_err(), "no server listens on the port");
    assert_eq!(http::get(service.http_port(), "/rules", &[]).expect("an answer").status, 404);
    service.log_with("admin=off");
}

#[test]
fn only_the_user_of_the_process_opens_the_socket_of_the_admin_port() {
    let folder = TempDir::new().expect("a temporary directory");
    let (plan, path) = with_socket(&folder);
    let mut service = plan.set("server.drain", "0s").start();
    let mode = std::fs::metadata(&path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    assert!(connect(service.admin_port()).is_err(), "no server listens on the port");
    let address = format!("unix:{}", path.display());
    service.log_with(&format!("admin={address}"));

    assert_eq!(get_over(&path, &["GET /rules HTTP/1.1", "host: localhost"]).status, 200);
    // A proxy may forward requests of a browser to the socket, so the same checks apply.
    assert_eq!(get_over(&path, &["GET /rules HTTP/1.1", "host: evil.example"]).status, 421);
    let Output { status, stdout, stderr } = counters(&address);
    assert!(status.success(), "{}", text(&stderr));
    assert!(text(&stdout).contains("3 of 3 left"), "{}", text(&stdout));

    service.terminate();
    assert!(service.wait_exit().success());
    assert!(!path.exists(), "the socket is removed at the end");
    let Output { status, stderr, .. } = counters(&address);
    assert_eq!(status.code(), Some(2));
    assert!(
        text(&stderr).contains(&format!("cannot connect to {address}: No such file")),
        "{}",
        text(&stderr)
    );
}

#[test]
fn the_socket_of_a_killed_process_is_replaced() {
    let folder = TempDir::new().expect("a temporary directory");
    let (plan, path) = with_socket(&folder);
    let mut service = plan.start();
    service.kill();
    assert!(path.exists(), "a killed process leaves its socket");
    service.restart();
    assert_eq!(get_over(&path, &["GET /rules HTTP/1.1", "host: localhost"]).status, 200);
}

#[test]
fn a_second_signal_removes_the_socket_too() {
    let folder = TempDir::new().expect("a temporary directory");
    let (plan, path) = with_socket(&folder);
    let mut service = plan.set("server.drain", "1h").start();
    let is_ready = |service: &Ratelimitd| {
        http::get(service.http_port(), "/readyz", &[]).is_ok_and(|answer| answer.status == 200)
    };
    service.terminate();
    wait::expect("draining", || !is_ready(&service));
    assert_eq!(get_over(&path, &["GET /rules HTTP/1.1", "host: localhost"]).status, 200, "until the end");
    // Signals within a second of the first one are the same stop.
    wait::expect("the end", || {
        if !service.has_ended() {
            service.terminate();
        }
        service.has_ended()
    });
    assert_eq!(service.wait_exit().code(), Some(1));
    assert!(!path.exists(), "the socket is removed at the end");
}

#[test]
fn a_file_at_the_path_of_the_socket_ends_the_process_with_the_reason() {
    let folder = TempDir::new().expect("a temporary directory");
    let (plan, path) = with_socket(&folder);
    std::fs::write(&path, "precious").expect("a file");
    let Err(problem) = plan.try_start() else { panic!("the path is taken") };
    let reason = format!(
        "server.admin.address: cannot listen on unix:{}: a file that is not a socket is there",
        path.display()
    );
    assert!(problem.log.contains(&reason), "{problem:?}");
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "precious");
}

#[test]
fn two_processes_do_not_share_a_socket() {
    let folder = TempDir::new().expect("a temporary directory");
    let (plan, path) = with_socket(&folder);
    let service = plan.start();
    let (plan, _) = with_socket(&folder);
    let Err(problem) = plan.try_start() else { panic!("the socket is in use") };
    assert!(problem.log.contains("another process listens on it"), "{problem:?}");
    assert_eq!(get_over(&path, &["GET /rules HTTP/1.1", "host: localhost"]).status, 200);
    drop(service);
}
