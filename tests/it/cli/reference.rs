//! The tools of `envoyproxy/ratelimit` by their names: its recorded command lines, with the same exit codes and lines.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::certificates::Authority;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{ports, wait};

const RECORDED: &str = include_str!("../../data/operation/commands.json");

const RULES: &str = "
domain: basic
descriptors:
  - { key: key1, value: value1, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - { key: sub, rate_limit: { name: nm, unit: hour, requests_per_unit: 1 } }
";

struct Case {
    arguments: Vec<String>,
    files: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    stdout: String,
    code: i64,
}

fn cases(program: &str) -> Vec<Case> {
    let all: Value = serde_json::from_str(RECORDED).expect("JSON");
    all[program].as_array().expect("a list").iter().map(case).collect()
}

fn case(value: &Value) -> Case {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let pairs = |name: &str| {
        let map = value.get(name).and_then(Value::as_object);
        map.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
    };
    Case {
        arguments: value["args"].as_array().expect("a list").iter().map(text).collect(),
        files: pairs("files"),
        environment: pairs("environment"),
        stdout: text(&value["stdout"]),
        code: value["exit"].as_i64().expect("a number"),
    }
}

/// Runs the binary under the name, in a directory with the files.
fn run(program: &str, case: &Case, arguments: &[String]) -> Output {
    let directory = TempDir::new().expect("a directory");
    for (name, text) in case.files.iter().chain(&[("empty/.keep".to_owned(), String::new())]) {
        let path = directory.path().join("work").join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    std::fs::remove_file(directory.path().join("work/empty/.keep")).expect("a file");
    let link = directory.path().join(program);
    symlink(env!("CARGO_BIN_EXE_ratelimitd"), &link).expect("a link");
    let mut command = Command::new(link);
    command.current_dir(directory.path().join("work")).env_clear().envs(case.environment.iter().cloned());
    command.args(arguments).output().expect("the program runs")
}

#[test]
fn config_check_ends_as_recorded() {
    let cases = cases("ratelimit_config_check");
    assert!(cases.len() >= 25, "{}", cases.len());
    for case in cases {
        let output = run("ratelimit_config_check", &case, &case.arguments);
        let found = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let told = format!("{:?}: {found:?}", case.arguments);
        assert_eq!(output.status.code().map(i64::from), Some(case.code), "{told}");
        // Messages about rules name the line, and those about settings are ours; the other lines are the same.
        let is_same = |line: &&str| !line.starts_with("error loading ") && !line.starts_with(' ');
        let lines = |text: &str| text.lines().filter(is_same).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&found.0), lines(&case.stdout), "{told}");
    }
}

#[test]
fn the_client_prints_what_was_recorded() {
    let service = Ratelimitd::start(RULES);
    let [grpc, nobody] = [service.grpc_port(), ports::free()].map(|port| format!("localhost:{port}"));
    let cases = cases("ratelimit_client");
    assert!(cases.len() >= 15, "{}", cases.len());
    for case in cases {
        let place = |word: &String| word.replace("<grpc>", &grpc).replace("<nobody>", &nobody);
        let arguments: Vec<String> = case.arguments.iter().map(place).collect();
        let output = run("ratelimit_client", &case, &arguments);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let told = format!("{:?}: {stdout:?} {:?}", case.arguments, String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code().map(i64::from), Some(case.code), "{told}");
        let flags =
            |text: &str| text.lines().filter(|line| line.starts_with("Flag: ")).map(str::to_owned).collect();
        let (found, expected): (Vec<String>, Vec<String>) = (flags(&stdout), flags(&place(&case.stdout)));
        assert_eq!(found, expected, "{told}");
        let protocol = |text: &str| text.lines().any(|line| line == "Invalid otlptrace client protocol: foo");
        assert_eq!(protocol(&stdout), protocol(&case.stdout), "{told}");
        let answer =
            |text: &str| text.lines().find(|line| line.starts_with("response: ")).map(without_seconds);
        assert_eq!(answer(&stdout), answer(&case.stdout), "{told}");
    }
    wait::expect("the service goes on", || service.log().contains("serving"));
}

#[test]
fn the_client_says_that_its_certificate_is_refused() {
    let authority = Authority::new();
    let server = authority.certificate_for(&["localhost"]);
    let service = Plan::new(RULES)
        .set("server.grpc.tls.cert_file", server.certificate.display().to_string())
        .set("server.grpc.tls.key_file", server.key.display().to_string())
        .set("server.grpc.tls.client_ca_file", authority.file().display().to_string())
        .start();
    let address = format!("localhost:{}", service.grpc_port());
    let (ca_file, descriptor) = (authority.file().display().to_string(), "sub=x");
    let arguments = ["-dial_string", &address, "-domain", "basic", "-descriptors", descriptor];
    let tls = ["-grpc-use-tls", "-grpc-server-ca-file", &ca_file];
    let arguments: Vec<String> = arguments.into_iter().chain(tls).map(str::to_owned).collect();
    let case = Case {
        arguments: Vec::new(),
        files: Vec::new(),
        environment: Vec::new(),
        stdout: String::new(),
        code: 1,
    };
    let output = run("ratelimit_client", &case, &arguments);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let error = stdout.lines().find(|line| line.starts_with("request error: ")).unwrap_or_default();
    assert!(error.starts_with("request error: rpc error: code = Unavailable desc = "), "{stdout}");
    assert!(!error.ends_with("transport error"), "{stdout}");
}

/// The line without the number of seconds that a limit still takes.
fn without_seconds(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("seconds:") {
        text.push_str(before);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    text + rest
}
