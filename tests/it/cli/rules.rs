//! `validate` and `explain`: arguments and exit codes.

use std::path::PathBuf;
use std::process::Command;

use crate::rules::root;

/// The exit code of a command line; `@` stands for the repository.
fn exit_code(line: &str) -> Option<i32> {
    let words = line.split_whitespace().map(|word| match word.strip_prefix('@') {
        Some(path) => root().join(path),
        None => PathBuf::from(word),
    });
    let output = Command::new(env!("CARGO_BIN_EXE_ratelimitd")).args(words).output();
    output.expect("the binary runs").status.code()
}

#[test]
fn validate_and_explain_exit_with_the_documented_code() {
    let table = [
        // command line, whether it succeeds
        ("validate @config/rules", true),
        ("validate --strict @config/rules", true),
        ("validate @config/rules/edge.yaml @config/rules/llm.yaml", true),
        ("validate --schema", true),
        ("validate @tests/data/rules/bad", false),
        ("validate @tests/data/rules/bad/unreachable.yaml", true), // warnings only
        ("validate --strict @tests/data/rules/bad/unreachable.yaml", false),
        ("validate @nowhere", false),
        ("validate @config/rules/edge.yaml @tests/data/rules/bad/duplicate-domain", false),
        ("explain --rules @config/rules --domain edge generic_key=slow", true),
        ("explain --domain edge --rules @config/rules generic_key=slow tenant=a,path=/none", true),
        ("explain --rules @config/rules --domain edge generic_key=fast", false),
        ("explain --rules @config/rules --domain nowhere generic_key=slow", false),
        ("explain --rules @nowhere --domain edge generic_key=slow", false),
    ];
    for (line, succeeds) in table {
        assert_eq!(exit_code(line), Some(if succeeds { 0 } else { 1 }), "{line}");
    }
}

#[test]
fn missing_or_invalid_arguments_are_refused() {
    for line in [
        "validate",
        "explain --domain d a=b",
        "explain --rules r --domain d",
        "explain --rules r --domain d =b",
    ] {
        assert_eq!(exit_code(line), Some(2), "{line}");
    }
}
