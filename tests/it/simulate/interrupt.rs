//! An interrupted simulation reports what it has read.

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use super::{RULES, Simulation};
use crate::support::wait::{PATIENCE, until};

const MAP: &str = "domain: edge\ndescriptors:\n  - - { key: remote_address, from: remote_addr }\n";
const LINE: &str = "192.0.2.1 - - [15/Apr/2026:20:17:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl\"\n";

/// A simulation of standard input in progress, to which SIGINT can be sent.
fn simulation_of_a_pipe(simulation: &Simulation) -> Command {
    // A shell starts background jobs with SIGINT ignored, and the program keeps it so.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_ratelimitctl")]);
    command.args(["simulate", "--rules"]).arg(simulation.path("rules.yaml"));
    command.arg("--map").arg(simulation.path("map.yaml"));
    command.arg("--report-json").arg(simulation.path("report.json")).arg("-");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn interrupt(child: &Child) {
    let interrupt = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &interrupt]).status().is_ok_and(|status| status.success()));
}

/// The report of an interrupted simulation.
fn partial_report(simulation: &Simulation, child: Child) -> Value {
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("Interrupted: "));
    let report = std::fs::read(simulation.path("report.json")).expect("a report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["partial"], true);
    let method = &report["method"];
    let numbers = [&report["totals"]["requests"], &method["unreadable"], &method["lines"]];
    let [requests, unreadable, lines] = numbers.map(|number| number.as_u64().expect("a number"));
    assert_eq!(requests + unreadable, lines);
    assert!(unreadable <= 1, "the interrupt can cut only the last line");
    report
}

/// Waits until the process listens to signals, has read all that was written to its standard input, and waits for more.
fn wait_until_silent(child: &Child, stdin: &ChildStdin) {
    let process = PathBuf::from(format!("/proc/{}", child.id()));
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let listens = || {
        let status = text(process.join("status"));
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
    };
    let sleeps = || {
        let threads = std::fs::read_dir(process.join("task")).expect("the process runs").flatten();
        let threads: Vec<_> = threads.map(|thread| text(thread.path().join("stat"))).collect();
        // The thread that reads the log, and all that could still work on what it has read.
        threads.iter().any(|thread| thread.contains(" (log) S "))
            && threads.iter().all(|t| t.contains(") S "))
    };
    let is_silent = || listens() && rustix::io::ioctl_fionread(stdin).is_ok_and(|left| left == 0) && sleeps();
    let waits = until(PATIENCE, || is_silent().then_some(()));
    assert!(waits.is_some(), "the process does not wait for its input");
}

#[test]
fn a_simulation_of_a_silent_pipe_can_be_interrupted() {
    let simulation = Simulation::new(RULES).map(MAP);
    let mut child = simulation_of_a_pipe(&simulation).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(LINE.repeat(100).as_bytes()).expect("room in the pipe");
    wait_until_silent(&child, &stdin);
    interrupt(&child);
    let report = partial_report(&simulation, child);
    assert_eq!(report["totals"]["requests"], 100);
    assert_eq!(report["method"]["inputs"][0]["cut"], Value::Null);
    drop(stdin);
}

#[test]
fn an_interrupted_simulation_reports_what_it_has_read() {
    let simulation = Simulation::new(RULES).map(MAP);
    let mut child = simulation_of_a_pipe(&simulation).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let block = LINE.repeat(10_000);
    // More than the pipe holds: when it is written, the process reads, and listens to signals.
    stdin.write_all(block.as_bytes()).expect("the log is read");
    interrupt(&child);
    // The log has no end: only the interrupt ends the process.
    let written = loop {
        match stdin.write_all(block.as_bytes()) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(written.kind(), ErrorKind::BrokenPipe);
    let report = partial_report(&simulation, child);
    assert!(report["totals"]["requests"].as_u64().is_some_and(|requests| requests > 1_000));
}
