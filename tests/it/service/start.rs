//! What the log of a start tells: where the counters and the rules are, and which variables have no effect. And what
//! the process asks of the kernel.

use std::fs;
use std::process::Command;

use crate::support::daemon::Daemon;
use crate::support::grpc::{Code, Rls};
use crate::support::image::{DOCKERFILE, Image, PROGRAM};
use crate::support::process::Plan;
use crate::support::program::service;
use crate::support::wait;

const RULES: &str = "{ domain: start, descriptors: [] }";

#[test]
fn the_log_names_the_store_and_the_rules() {
    let service = Plan::new(RULES).start();
    let log = service.log_with(" serving ");
    let line = log.lines().find(|line| line.contains(" serving ")).expect("a line");
    assert!(line.contains("store=\"memory\""), "{line}");
    assert!(line.contains(&format!("rules={}", service.rules().display())), "{line}");
}

#[test]
fn variables_without_effect_are_named_and_their_values_are_not() {
    let service = Plan::new(RULES)
        .variable("REDIS_URL", "redis://hunter2@redis:6379")
        .variable("RATELIMITD_STORE_KNID", "hunter2")
        .variable("RATELIMITD_PORT", "tcp://10.0.0.1:8081")
        .start();
    // The last line of the start.
    let log = service.log_with(" serving ");
    let told: Vec<_> = log.lines().filter(|line| line.contains("environment variable")).collect();
    let lines_with = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    let not_read =
        "ignoring the variables of envoyproxy/ratelimit: other programs use the names REDIS_URL, too";
    assert_eq!(lines_with(not_read), 1, "{log}");
    assert_eq!(lines_with("RATELIMITD_STORE_KNID is ignored"), 1, "{log}");
    assert!(told.iter().all(|line| line.contains(" WARN ")), "{log}");
    assert!(!log.contains("RATELIMITD_PORT") && !log.contains("hunter2"), "{log}");
}

#[test]
fn a_setting_with_single_underscores_ends_the_start() {
    let Err(problem) = Plan::new(RULES).variable("RATELIMITD_STORE_KIND", "redis").try_start() else {
        panic!("the store would be memory");
    };
    assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
    assert!(problem.log.contains("RATELIMITD__STORE__KIND"), "{problem:?}");
}

#[tokio::test]
async fn two_processes_share_a_port_only_with_the_setting() {
    let mut old = Plan::new(RULES).set("server.reuse_port", true).set("server.drain", "0s").start();
    let address = format!("127.0.0.1:{}", old.grpc_port());
    let on_the_same_port = || Plan::new(RULES).set("server.grpc.address", address.as_str());
    let Err(problem) = on_the_same_port().try_start() else {
        panic!("a second process must not take half of the connections unasked");
    };
    assert_eq!(problem.status.and_then(|status| status.code()), Some(1), "{problem:?}");
    assert!(problem.log.contains("server.grpc.address: cannot listen on"), "{problem:?}");

    let both = on_the_same_port().set("server.http.address", address.as_str()).set("server.reuse_port", true);
    let Err(problem) = both.try_start() else {
        panic!("one process must not take half of the calls of its other port");
    };
    let told = format!("server.http.address: {address} is already the address of server.grpc.address");
    assert!(problem.log.contains(&told), "{problem:?}");

    let _new = on_the_same_port().set("server.reuse_port", true).start();
    old.terminate();
    assert!(old.wait_exit().success());
    let (code, _) = Rls::connect(old.grpc_port()).await.send_one("start", &[("user", "ann")]).await;
    assert_eq!(code, Code::Ok, "the new process answers on the port of the old one");
}

#[test]
fn a_signal_ends_a_startup_that_takes_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = (0..40_000)
        .map(|key| format!("- {{ key: k{key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n"));
    let file = folder.path().join("rules.yaml");
    fs::write(&file, format!("domain: start\ndescriptors:\n{}", rules.collect::<String>()))
        .expect("room for the rules");
    let mut command = Command::new(service());
    command.env("RATELIMITD__RULES__PATH", &file).current_dir(folder.path());
    let mut process = Daemon::spawn("ratelimitd", "cargo build", &mut command);
    let status = format!("/proc/{}/status", process.id());
    wait::expect("a handler of SIGTERM", || {
        let status = fs::read_to_string(&status).expect("a process");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a set of signals");
        u64::from_str_radix(caught.trim(), 16).expect("a number") >> 14 & 1 == 1
    });
    process.terminate();
    assert!(process.wait_exit().success());
    let log = process.log();
    assert!(log.contains("stopped during startup") && !log.contains(" serving "), "{log}");
}

#[test]
fn the_image_does_not_start_without_rules_of_its_own() {
    let image = Image::new();
    assert!(DOCKERFILE.contains(r#"CMD ["serve", "--config", "config/ratelimitd.yaml"]"#));
    let start = |command: &str| {
        let mut process = Command::new(image.program(PROGRAM));
        process
            .args(command.split(' '))
            .current_dir(image.working_folder())
            .output()
            .expect("the binary runs")
    };
    let output = start("serve --config config/ratelimitd.yaml");
    let reason = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{reason}");
    assert!(reason.contains("config/rules"), "{reason}");
    assert!(start("validate examples/rules").status.success(), "the image has the examples");
}

#[test]
fn the_image_has_the_program_for_people() {
    let image = Image::new();
    let printed = Command::new(image.program("usr/local/bin/ratelimitctl")).arg("--version").output();
    assert!(printed.expect("the binary runs").stdout.starts_with(b"ratelimitctl "));
}

#[test]
fn the_process_refuses_huge_pages() {
    assert_eq!(Plan::new(RULES).start().proc_field("status", "THP_enabled"), 0);
}
