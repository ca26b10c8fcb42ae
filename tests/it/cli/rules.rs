//! `validate` and `explain`: arguments and exit codes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ratelimitd::cli::explain::{self, ExplainArgs};
use ratelimitd::cli::validate::{self, ValidateArgs};

use crate::rules::root;

#[derive(Parser)]
enum Command {
    Validate(ValidateArgs),
    Explain(ExplainArgs),
}

fn run(line: &str) -> ExitCode {
    let words = line.split_whitespace().map(|word| match word.strip_prefix('@') {
        Some(path) => root().join(path),
        None => PathBuf::from(word),
    });
    match Command::try_parse_from(std::iter::once(PathBuf::from("ratelimitd")).chain(words)) {
        Ok(Command::Validate(args)) => validate::run(&args),
        Ok(Command::Explain(args)) => explain::run(&args),
        Err(error) => panic!("{line}: {error}"),
    }
}

#[test]
fn validate_and_explain_exit_with_the_documented_code() {
    let table = [
        // command line (@ is the path of the repository), whether it succeeds
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
        let expected = if succeeds { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        assert!(run(line) == expected, "{line}");
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
        let words = std::iter::once("ratelimitd").chain(line.split_whitespace());
        assert!(Command::try_parse_from(words).is_err(), "{line}");
    }
}
