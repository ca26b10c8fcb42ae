//! `validate`, `explain`, `replay` and `simulate` with files of exceptions.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::program_of;

const RULES: &str = "
domain: llm
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 60, algorithm: fixed_window, name: tokens, tiers: { pro: 600 } }
";

/// A folder with rules and exceptions.
fn folder(csv: &str, yaml: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let exceptions = folder.path().join("exceptions");
    fs::create_dir(&exceptions).expect("a folder");
    for (path, text) in [
        (folder.path().join("rules.yaml"), RULES),
        (exceptions.join("tenants.csv"), csv),
        (exceptions.join("oncall.yaml"), yaml),
    ] {
        fs::write(path, text).expect("a file");
    }
    folder
}

/// Runs a command line in the folder.
fn run(folder: &Path, line: &str) -> Output {
    let words: Vec<_> = line.split_whitespace().collect();
    let output = Command::new(program_of(&words)).args(words).current_dir(folder).output();
    output.expect("the binary runs")
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

const CSV: &str = "domain,key,value,tier\nllm,tenant,other,pro\nllm,tenant,acme,pro\n";
const YAML: &str = "- { domain: llm, key: tenant, value: acme, multiplier: 2, until: 2100-01-01T00:00:00Z, reason: INC-42 }\n";

#[test]
fn validate_checks_exceptions_against_the_rules() {
    let good = folder(CSV, YAML);
    let output = run(good.path(), "validate --strict --exceptions exceptions rules.yaml");
    assert!(output.status.success(), "{}", told(&output));
    assert!(told(&output).contains("exceptions: 2 files, 3 rows, 0 warnings"), "{}", told(&output));

    let unknown = folder("domain,key,value,tier\nllm,tenant,acme,gold\n", "[]");
    let output = run(unknown.path(), "validate --exceptions exceptions rules.yaml");
    assert_eq!(output.status.code(), Some(0));
    let warning = "exceptions/tenants.csv:2: warning: no limit that the row applies to has the tier 'gold'";
    assert!(told(&output).contains(warning), "{}", told(&output));
    let output = run(unknown.path(), "validate --strict --exceptions exceptions rules.yaml");
    assert_eq!(output.status.code(), Some(1));

    let bad = folder("tenant,tier\nacme,pro\n", "- { domain: llm, key: tenant, value: acme }\n");
    let output = run(bad.path(), "validate --exceptions exceptions rules.yaml");
    assert_eq!(output.status.code(), Some(1));
    for problem in [
        "exceptions/oncall.yaml:1: the row changes nothing: it needs tier, limit",
        "exceptions/tenants.csv:1: unknown column 'tenant'",
        "2 errors, 0 warnings",
    ] {
        assert!(told(&output).contains(problem), "{problem}: {}", told(&output));
    }
    // The files of the settings.
    let settings = "rules: {path: rules.yaml}\nexceptions: {path: exceptions}\n";
    fs::write(good.path().join("settings.yaml"), settings).expect("a file");
    let output = run(good.path(), "validate --config settings.yaml");
    assert!(told(&output).contains("exceptions: 2 files, 3 rows, 0 warnings"), "{}", told(&output));
}

#[test]
fn explain_says_which_row_of_which_file_and_how_the_number_came_about() {
    let folder = folder(CSV, YAML);
    let output =
        run(folder.path(), "explain --rules rules.yaml --exceptions exceptions --domain llm tenant=acme");
    let text = told(&output);
    assert!(output.status.success(), "{text}");
    for part in ["60", "tier pro 600", "exceptions/tenants.csv:3", "1200", "exceptions/oncall.yaml:1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output =
        run(folder.path(), "explain --rules rules.yaml --exceptions exceptions --domain llm tenant=x");
    assert!(!told(&output).contains("exceptions/"), "{}", told(&output));
}

/// A row ends at this time, in microseconds: 2026-11-24T00:00:00Z.
const END_US: u64 = 1_795_478_400_000_000;
const ENDED: &str = "- { domain: llm, key: tenant, value: acme, block: true, until: 2026-11-24T00:00:00Z }\n";

fn request(t_us: u64) -> String {
    format!(
        r#"{{"t_us":{t_us},"domain":"llm","descriptors":[{{"entries":[{{"key":"tenant","value":"acme"}}]}}]}}"#
    ) + "\n"
}

#[test]
fn replay_and_simulate_apply_rows_by_the_time_of_the_log() {
    let folder = folder("domain,key,value,tier\n", ENDED);
    let requests: String = [END_US - 2, END_US - 1, END_US, END_US + 1].map(request).concat();
    fs::write(folder.path().join("log.jsonl"), requests).expect("a file");
    let output = run(folder.path(), "replay --rules rules.yaml --exceptions exceptions --requests log.jsonl");
    let codes: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| {
            let answer: Value = serde_json::from_str(line).expect("JSON");
            answer["overall_code"].as_str().unwrap_or_default().to_owned()
        })
        .collect();
    assert_eq!(codes, ["OVER_LIMIT", "OVER_LIMIT", "OK", "OK"], "{}", told(&output));

    let line = "simulate --rules rules.yaml --exceptions exceptions --report-json - log.jsonl";
    let output = run(folder.path(), line);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
    assert_eq!(report["rules"][0]["over"], 2, "{report:#}");
    let files: Vec<_> = report["method"]["digests"].as_array().into_iter().flatten().collect();
    assert!(files.iter().any(|file| file["role"] == "exceptions"), "{files:?}");
}
