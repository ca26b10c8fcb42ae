//! Output that cannot be written: the reader has gone, or the device is full.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use crate::rules::root;
use crate::support::process::Ratelimitd;
use crate::support::program::program_of;
use crate::support::unwritable::{full_device, pipe_without_reader};

const RULES: &str = "
domain: out
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1000 } }
  - { key: blocked, rate_limit: { unit: year, requests_per_unit: 0 } }
";

/// Runs the binary in the repository. The words `GRPC`, `HTTP` and `ADMIN` stand for the ports of the service.
fn command(service: &Ratelimitd, line: &str) -> Command {
    let words: Vec<_> = line.split_whitespace().collect();
    let mut command = Command::new(program_of(&words));
    command.current_dir(root()).stdin(Stdio::null());
    command.args(words.iter().map(|word| match *word {
        "GRPC" => format!("127.0.0.1:{}", service.grpc_port()),
        "HTTP" => format!("127.0.0.1:{}", service.http_port()),
        "ADMIN" => format!("127.0.0.1:{}", service.admin_port()),
        word => word.to_owned(),
    }));
    command
}

fn run_into(service: &Ratelimitd, line: &str, stdout: File) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        command(service, line).stdout(stdout).output().expect("the binary runs");
    (status.code(), String::from_utf8(stderr).expect("UTF-8"))
}

/// Each command that prints, and its exit code when the output is read.
const COMMANDS: [(&str, i32); 15] = [
    ("--help", 0),
    ("validate --help", 0),
    ("--version", 0),
    ("health --address HTTP", 0),
    ("validate config/rules", 0),
    ("validate --schema", 0),
    ("explain --rules config/rules --domain edge generic_key=slow", 0),
    ("explain --rules config/rules --domain edge generic_key=none", 1),
    ("check --address GRPC --domain out user=ann", 0),
    ("check --address GRPC --domain out --count 3 --json user=ann", 0),
    ("check --address GRPC --domain out --count 3 blocked=x", 1),
    ("counters show --admin ADMIN --domain out user=ann", 0),
    ("counters show --json --admin ADMIN --domain out user=ann", 0),
    ("counters reset --admin ADMIN --domain out user=ann", 0),
    ("replay --rules config/rules --requests docs/examples/requests.jsonl", 0),
];

#[test]
fn a_reader_that_has_gone_changes_no_exit_code_and_is_no_error() {
    let service = Ratelimitd::start(RULES);
    for (line, code) in COMMANDS {
        assert_eq!(run_into(&service, line, pipe_without_reader()), (Some(code), String::new()), "{line}");
    }
}

#[test]
fn output_on_a_full_device_is_an_error_with_the_reason() {
    let service = Ratelimitd::start(RULES);
    for (line, _) in COMMANDS {
        let (code, error) = run_into(&service, line, full_device());
        // A container is healthy whether or not the answer can be printed.
        let expected = if line.starts_with("health") { 0 } else { 2 };
        assert_eq!(code, Some(expected), "{line}: {error}");
        assert_eq!(
            error, "cannot write to standard output: No space left on device (os error 28)\n",
            "{line}"
        );
    }
}

#[test]
fn a_check_ends_when_its_reader_leaves() {
    let service = Ratelimitd::start(RULES);
    let line = "check --address GRPC --domain out --count 1000000 --json user=bob";
    let mut child = command(&service, line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    reader.read_line(&mut first).expect("an answer");
    assert!(first.contains("\"overall_code\":\"OK\""), "{first}");
    drop(reader);
    let Output { status, stderr, .. } = child.wait_with_output().expect("the command ends");
    // The limit of 1,000 may have been reached before the reader left.
    assert!(matches!(status.code(), Some(0 | 1)) && stderr.is_empty(), "{status} {stderr:?}");
}

#[test]
fn errors_that_cannot_be_written_leave_the_exit_code() {
    let service = Ratelimitd::start(RULES);
    let commands = [
        ("validate --nonsense", 2),
        ("validate tests/data/rules/bad", 1),
        ("validate --strict tests/data/rules/bad/unreachable.yaml", 1),
        ("explain --rules tests/data/rules/bad --domain d a=b", 1),
        // Nothing listens there. A timeout, however short, can lose against the answer: both can be there at the next
        // turn of a process that did not run for a while.
        ("check --address 127.0.0.1:1 --domain out user=ann", 2),
        ("counters show --admin ADMIN --domain out none=x", 2),
        ("replay --rules config/rules --requests docs/examples/none.jsonl", 2),
        ("replay --rules config/rules --requests docs/examples/requests.jsonl", 0),
        ("serve --config nowhere.yaml", 1),
    ];
    for (line, code) in commands {
        for stderr in [full_device(), pipe_without_reader()] {
            let status = command(&service, line).stdout(Stdio::null()).stderr(stderr).status();
            assert_eq!(status.expect("the binary runs").code(), Some(code), "{line}");
        }
    }
}
