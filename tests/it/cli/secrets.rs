//! `validate`, `explain`, `check`, `counters` and `replay` with secret values.

use std::io::Write as _;
use std::process::{Command, Output};

use tempfile::NamedTempFile;

use crate::cli::counters::counters_of;
use crate::service::secrets::{KEY, RULES, TOKEN, talkative};
use crate::support::program::program_of;

fn file(text: &str, suffix: &str) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("room for the text");
    file
}

/// Runs a sub-command with the key of the hashes in the environment, or without one.
fn run(key: Option<&str>, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program_of(arguments));
    command.args(arguments).env_remove("RATELIMITD__SECRETS__KEY");
    command.envs(key.map(|key| ("RATELIMITD__SECRETS__KEY", key)));
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn validate_needs_the_key_that_the_rules_need() {
    let rules = file(RULES, ".yaml");
    let path = rules.path().to_str().expect("UTF-8");
    let (code, out, error) = run(Some(KEY), &["validate", "--strict", path]);
    assert_eq!(code, Some(0), "{out}{error}");
    let (code, _, error) = run(None, &["validate", path]);
    assert_eq!(code, Some(1), "{error}");
    for line in [5, 10, 17] {
        let message = format!("{path}:{line}: a secret value needs a key for its hash");
        assert!(error.contains(&message), "{error}");
    }
    let (code, _, error) = run(Some("too short"), &["validate", path]);
    assert_eq!(code, Some(1));
    assert!(error.contains("RATELIMITD__SECRETS__KEY") && !error.contains("too short"), "{error}");
    let settings = file("secrets: { key_file: /nowhere/key }", ".yaml");
    let settings = settings.path().to_str().expect("UTF-8");
    let (code, _, error) = run(None, &["validate", "--config", settings, path]);
    assert_eq!((code, error.starts_with("secrets.key_file: /nowhere/key: ")), (Some(1), true), "{error}");
}

#[test]
fn explain_and_counters_show_the_same_key_and_no_value() {
    let rules = file(RULES, ".yaml");
    let path = rules.path().to_str().expect("UTF-8");
    let descriptor = format!("api_key={TOKEN}");
    let explain = |key: &str| {
        let (code, out, error) =
            run(Some(key), &["explain", "--rules", path, "--domain", "api", &descriptor]);
        assert_eq!(code, Some(0), "{error}");
        assert!(!out.contains("4f8a0c1b"), "{out}");
        let line = out.lines().find_map(|line| line.trim().strip_prefix("store key"));
        let key = line.and_then(|line| line.split_whitespace().next()).expect("a key").to_owned();
        assert!(key.starts_with("{api|api_key=%k"), "{out}");
        key
    };
    let service = talkative(RULES).start();
    let (code, shown, error) = counters_of(&service, "api", &["show", &descriptor]);
    assert_eq!(code, Some(0), "{error}");
    assert!(shown.starts_with(&explain(KEY)) && !shown.contains(TOKEN), "{shown}");
    assert_ne!(explain(KEY), explain(&KEY.replace("c0ffee", "c0c0a0")), "the key of the hashes matters");
    // Without a rule: the values are not quoted, nor those of the rules of the level.
    for descriptor in [format!("api_key={TOKEN},other=x"), format!("tenant=a,token={TOKEN}")] {
        let (code, out, _) = run(Some(KEY), &["explain", "--rules", path, "--domain", "api", &descriptor]);
        assert_eq!(code, Some(1), "{out}");
        assert!(out.contains("=%k") && !out.contains("4f8a0c1b"), "{out}");
    }
    let (_, out, _) = run(Some(KEY), &["explain", "--rules", path, "--domain", "api", "user=ann"]);
    assert!(out.contains("'api_key_%k") && !out.contains("4f8a0c1b"), "the nodes of a level: {out}");
}

#[test]
fn check_shows_what_the_service_shows() {
    let descriptor = format!("api_key={TOKEN},path=/v1");
    let check = |metadata: bool| {
        let service = talkative(RULES).set("response.dynamic_metadata", metadata).start();
        let address = format!("127.0.0.1:{}", service.grpc_port());
        let arguments = ["check", "--timeout", "10s", "--address", &address, "--domain", "api", &descriptor];
        let (code, out, error) = run(None, &arguments);
        assert_eq!(code, Some(0), "{error}");
        out
    };
    let shown = check(true);
    assert!(
        shown.contains("  api_key=%k") && shown.contains(",path=/v1: OK, 4 of 5 per year left"),
        "{shown}"
    );
    // Without metadata it is what was written on the command line.
    let shown = check(false);
    assert!(shown.contains(&format!("  {descriptor}: OK, 4 of 5 per year left")), "{shown}");
}

#[test]
fn replay_answers_without_the_value() {
    let rules = file(RULES, ".yaml");
    let path = rules.path().to_str().expect("UTF-8");
    let line = |t_us: u64, value: &str| {
        format!(
            r#"{{"t_us":{t_us},"domain":"api","descriptors":[{{"entries":[{{"key":"api_key","value":"{value}"}}]}}]}}"#
        )
    };
    let vip = "vip-4f8a0c1b9d2e7f6a";
    let requests = [line(1, TOKEN), line(2, TOKEN), line(3, TOKEN), line(4, vip)].join("\n");
    let requests = file(&requests, ".jsonl");
    let requests = requests.path().to_str().expect("UTF-8");
    let (code, out, error) = run(Some(KEY), &["replay", "--rules", path, "--requests", requests]);
    assert_eq!(code, Some(0), "{error}");
    let denied = out.lines().filter(|line| line.contains("\"overall_code\":\"OVER_LIMIT\"")).count();
    assert_eq!((out.lines().count(), denied), (4, 1), "{out}");
    assert!(out.contains("\"rule\":\"api.api_key_%k"), "{out}");
    assert!(!out.contains("4f8a0c1b") && !error.contains("4f8a0c1b"), "{out}{error}");
}
