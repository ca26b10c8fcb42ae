//! Processes with a ledger: what stands in their files after SIGTERM, after SIGKILL, and when the disk was full.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::NamedTempFile;

use super::{files, lines};
use crate::support::grpc::{Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

const RULES: &str = "
domain: d
descriptors:
  - { key: k, rate_limit: { name: daily, unit: day, requests_per_unit: 100000, algorithm: fixed_window, calendar: UTC, ledger: true, unit_name: calls } }
  - { key: paced, rate_limit: { name: paced, unit: day, requests_per_unit: 100000, algorithm: gcra, ledger: true } }
  - { key: unbooked, rate_limit: { unit: day, requests_per_unit: 100000, algorithm: fixed_window } }
";

pub(crate) fn plan(rules: &str, directory: &Path) -> Plan {
    Plan::new(rules).set("ledger.path", directory.to_str().expect("UTF-8")).set("ledger.interval", "10s")
}

pub(crate) fn metric(service: &Ratelimitd, name: &str) -> u64 {
    let page = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}: {page}")).parse().expect("a whole number")
}

/// Ends a process as an operator does.
pub(crate) fn stop(mut service: Ratelimitd) {
    service.terminate();
    assert!(service.wait_exit().success(), "{}", service.log());
}

pub(crate) fn usage(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
    let Output { status, stdout, stderr } = command.arg("usage").args(arguments).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[tokio::test]
async fn a_process_that_is_stopped_has_written_every_request() {
    let directory = tempfile::tempdir().expect("a directory");
    // Made at the start.
    let path = directory.path().join("a/usage");
    let service = plan(RULES, &path).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for number in 0..30 {
        let keys = [("k", ["x", "y", "z"][number % 3])];
        let sent = rls.send(request("d", vec![descriptor(&keys), descriptor(&[("unbooked", "x")])])).await;
        sent.expect("an answer");
    }
    drop(rls);
    stop(service);
    let lines = lines(&path);
    assert!(
        lines.first().is_some_and(|line| line.begin.as_ref().is_some_and(|begin| begin.interval_s == 10))
    );
    assert!(lines.last().is_some_and(|line| line.end));
    assert!(lines.iter().enumerate().all(|(number, line)| line.seq == number as u64), "{lines:?}");
    let keys: Vec<_> = lines.iter().flat_map(|line| &line.entries).map(|entry| &**entry).collect();
    assert!(["k=x", "k=y", "k=z"].iter().all(|key| keys.contains(key)), "{keys:?}");
    let sum = |field: fn(&ratelimitd::ledger::Line<'_>) -> u64| lines.iter().map(field).sum::<u64>();
    assert_eq!((sum(|line| line.ok), sum(|line| line.units), sum(|line| line.over)), (30, 30, 0));
    let (code, text, errors) = usage(&["--by", "k", path.to_str().expect("UTF-8")]);
    let expected = "k  requests  over  units  returned  used       of\nx        10     0     10         0    10  100,000\n";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn a_process_that_is_killed_has_written_what_it_admitted_until_its_last_interval() {
    let directory = tempfile::tempdir().expect("a directory");
    let token = NamedTempFile::new().expect("a file");
    fs::write(token.path(), "4dmin").expect("room for a few bytes");
    let token = token.path().to_str().expect("UTF-8");
    let mut service = plan(RULES, directory.path()).set("server.admin.token_file", token).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for _ in 0..5 {
        rls.send_one("d", &[("k", "x")]).await;
    }
    wait::expect("a line", || metric(&service, "ratelimitd_ledger_lines_total") >= 2);
    assert_eq!(metric(&service, "ratelimitd_ledger_difference"), 0);
    assert!(metric(&service, "ratelimitd_ledger_oldest_unwritten_seconds") <= 10);
    check_ledger(service.admin_port(), token, directory.path());
    for _ in 0..3 {
        rls.send_one("d", &[("k", "x")]).await;
    }
    service.kill();
    let written = lines(directory.path());
    let units: u64 = written.iter().map(|line| line.units).sum();
    assert!((5..=8).contains(&units), "{written:?}");
    let (process, path) = (written[0].process.clone(), directory.path().to_str().expect("UTF-8"));
    let (code, _, errors) = usage(&[path]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "it may be running");
    let file = File::options().append(true).open(&files(directory.path())[0]).expect("the file");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(wait::unix_seconds() - 60);
    file.set_modified(long_ago).expect("its time");
    let (code, _, errors) = usage(&[path]);
    // Its quarter may have begun since.
    if code == Some(0) {
        assert!(written.iter().any(|line| line.at + 20 > wait::unix_seconds() - 60), "{errors}");
        return;
    }
    assert_eq!(code, Some(1));
    assert!(
        errors.contains(&format!("{process} ended without its last line: up to 10 s after ")),
        "{errors}"
    );
}

/// Compares the counter with the ledger, then with one where another process booked something else.
fn check_ledger(admin_port: u16, token: &str, directory: &Path) {
    let admin = format!("http://127.0.0.1:{admin_port}");
    let check = |path: &Path| {
        let path = path.to_str().expect("UTF-8");
        usage(&["check", "--domain", "d", "--rule", "daily", "--admin", &admin, "--token-file", token, path])
    };
    let path = directory.to_str().expect("UTF-8");
    for (rule, reason) in [
        ("d.k", "--rule must be a limit's name in the ledger, such as \"daily\""),
        // These two have no counter.
        ("paced", "the limit has no fixed window"),
        ("d.unbooked", "the limit is not in the ledger: it has no `ledger: true`"),
    ] {
        let line = ["check", "--domain", "d", "--rule", rule, "--admin", &admin, "--token-file", token, path];
        let reason = format!("ratelimitctl usage check: {reason}\n");
        assert_eq!(usage(&line), (Some(2), String::new(), reason));
    }
    let equal = "counters compared: 1, differences: 0\n";
    assert_eq!(check(directory), (Some(0), equal.to_owned(), String::new()));
    let other = NamedTempFile::new().expect("a file");
    let at = wait::unix_seconds() / 900 * 900;
    let line = |seq: u8, rest: &str| format!("{{\"process\":\"other\",\"seq\":{seq},{rest}}}\n");
    let of_rule = |key: &str, rest: &str| {
        format!("\"at\":{at},\"domain\":\"d\",\"rule\":\"daily\",\"entries\":[\"k={key}\"],{rest}")
    };
    let text = [
        line(0, "\"begin\":{\"version\":\"1\",\"interval_s\":1}"),
        line(1, &of_rule("x", "\"units\":3")),
        line(2, &of_rule("y", "\"units\":9,\"back\":2,\"unknown\":1")),
        line(3, "\"end\":true"),
    ];
    fs::write(other.path(), text.concat()).expect("room for a few bytes");
    let table = "counter  used  least  most\nk=x         5      3     3\nk=y         0      6     8\n";
    let told = format!("{table}counters compared: 1, differences: 2\n");
    assert_eq!(check(other.path()), (Some(1), told, String::new()));
}

#[tokio::test]
async fn a_full_disk_delays_no_decision_and_loses_no_unit() {
    const KEYS: usize = 2_000;
    let directory = tempfile::tempdir().expect("a directory");
    let service = plan(RULES, directory.path()).ignore("XFSZ").start();
    wait::expect("a file", || !files(directory.path()).is_empty());
    let id = i32::try_from(service.proc_field("status", "Pid")).expect("an id");
    let id = Pid::from_raw(id).expect("an id");
    // Stands for a full disk: a write ends there with a part of its bytes, and the next one fails.
    let limit = |bytes| {
        prlimit(Some(id), Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("a limit")
    };
    limit(Some(100_000));
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut send_all = async || {
        for first in (0..KEYS).step_by(50) {
            let keys: Vec<_> = (first..first + 50).map(|key| key.to_string()).collect();
            let descriptors = keys.iter().map(|key| descriptor(&[("k", key)])).collect();
            rls.send(request("d", descriptors)).await.expect("an answer");
        }
    };
    send_all().await;
    service.log_with("cannot write the usage ledger");
    send_all().await;
    assert_eq!(metric(&service, "ratelimitd_ledger_difference"), 0);
    assert!(fs::metadata(&files(directory.path())[0]).expect("a file").len() < 1_000, "no torn line stays");
    limit(None);
    service.log_with("the usage ledger is written again");
    assert_eq!(metric(&service, "ratelimitd_ledger_difference"), 0);
    stop(service);
    let lines = lines(directory.path());
    let units: u64 = lines.iter().map(|line| line.units).sum();
    assert_eq!(units, 2 * KEYS as u64);
    assert!(lines.iter().enumerate().all(|(number, line)| line.seq == number as u64));
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().join("usage");
    let ended = Plan::new(RULES).set("ledger.path", path.to_str().expect("UTF-8")).try_start();
    let problem = format!("{:?}", ended.err().expect("no directory"));
    assert!(problem.contains("ledger.path: ") && problem.contains("Not a directory"), "{problem}");
}

#[tokio::test]
async fn lines_can_go_to_the_log() {
    let service = Plan::new(RULES).set("ledger.path", "-").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    rls.send_one("d", &[("k", "x")]).await;
    drop(rls);
    let mut service = service;
    service.terminate();
    assert!(service.wait_exit().success());
    let log = service.log_with("\"end\":true");
    assert!(log.contains("\"entries\":[\"k=x\"],\"of\":100000,\"ok\":1,\"units\":1}"), "{log}");
}
