//! An interrupted simulation reports what it has read.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{RULES, Simulation};

const MAP: &str = "domain: edge\ndescriptors:\n  - - { key: remote_address, from: remote_addr }\n";
const LINE: &str = "192.0.2.1 - - [15/Apr/2026:20:17:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl\"\n";

#[test]
fn an_interrupted_simulation_reports_what_it_has_read() {
    let simulation = Simulation::new(RULES).map(MAP);
    let json = simulation.path("report.json");
    // A shell starts background jobs with SIGINT ignored, and the program keeps it so.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_ratelimitd")]);
    command.args(["simulate", "--rules"]).arg(simulation.path("rules.yaml"));
    command.arg("--map").arg(simulation.path("map.yaml")).arg("--report-json").arg(&json).arg("-");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let block = LINE.repeat(10_000);
    // More than the pipe holds: when it is written, the process reads, and listens to signals.
    stdin.write_all(block.as_bytes()).expect("the log is read");
    let interrupt = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &interrupt]).status().is_ok_and(|status| status.success()));
    // The log has no end: only the interrupt ends the process.
    let written = loop {
        match stdin.write_all(block.as_bytes()) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(written.kind(), ErrorKind::BrokenPipe);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("Interrupted: "));
    let report: Value = serde_json::from_slice(&std::fs::read(json).expect("a report")).expect("JSON");
    assert_eq!(report["partial"], true);
    assert_eq!(report["totals"]["requests"], report["method"]["lines"]);
    assert!(report["totals"]["requests"].as_u64().is_some_and(|requests| requests > 1_000));
}
