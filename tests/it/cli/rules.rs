//! `validate` and `explain`: arguments and exit codes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::rules::root;
use crate::support::program::program_of;

/// The exit code of a command line; `@` stands for the repository.
fn exit_code(line: &str) -> Option<i32> {
    let words: Vec<_> = line.split_whitespace().collect();
    let arguments = words.iter().map(|word| match word.strip_prefix('@') {
        Some(path) => root().join(path),
        None => PathBuf::from(word),
    });
    let output = Command::new(program_of(&words)).args(arguments).output();
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
        ("validate", true), // rules.path of the settings: config/rules
        ("validate @tests/data/rules/bad", false),
        ("validate @tests/data/rules/bad/unreachable.yaml", true), // warnings only
        ("validate --strict @tests/data/rules/bad/unreachable.yaml", false),
        ("validate @nowhere", false),
        ("validate @config/rules/edge.yaml @tests/data/rules/bad/duplicate-domain", false),
        ("explain --rules @config/rules --domain edge generic_key=slow", true),
        ("explain --domain edge --rules @config/rules generic_key=slow tenant=a,path=/none", true),
        ("explain --domain edge generic_key=slow", true), // rules.path of the settings
        ("explain --rules @config/rules --domain edge generic_key=fast", false),
        ("explain --rules @config/rules --domain nowhere generic_key=slow", false),
        ("explain --rules @nowhere --domain edge generic_key=slow", false),
    ];
    for (line, succeeds) in table {
        assert_eq!(exit_code(line), Some(if succeeds { 0 } else { 1 }), "{line}");
    }
}

#[test]
fn explain_warns_of_limits_that_fail_differently() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rules = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3, on_store_failure: local } }
  - { key: page, rate_limit: { unit: day, requests_per_unit: 3, on_store_failure: allow } }
  - { key: path, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: shut, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: dark, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 3 } }
";
    let file = directory.path().join("rules.yaml");
    std::fs::write(&file, rules).expect("a rule file");
    let fails = "If Redis does not answer, the call fails unless another limit denies the request.\n";
    let decides = "If Redis does not answer, each limit decides by its own, and one denial is enough.\n";
    let table = [
        // descriptors, the limits that the warning names, its second sentence
        ("user=a path=b", Some(("d.user: local, d.path: error", fails))),
        ("user=a page=b", Some(("d.user: local, d.page: allow", decides))),
        ("user=a", None),
        ("path=a path=b", None),
        ("user=a shut=b", None), // needs no store
        ("user=a dark=b", None), // denies nothing
        ("user=a none=b", None),
    ];
    for (descriptors, expected) in table {
        let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
            .args(["explain", "--domain", "d", "--rules"])
            .arg(&file)
            .args(descriptors.split(' '))
            .output()
            .expect("the binary runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let expected = expected.map(|(limits, sentence)| {
            format!("Warning: limits of this request differ in on_store_failure ({limits}).\n{sentence}")
        });
        let warning = text.find("Warning").map(|start| text[start..].to_owned());
        assert_eq!(warning, expected, "{descriptors:?}: {text}");
    }
}

#[test]
fn missing_or_invalid_arguments_are_refused() {
    for line in ["explain a=b", "explain --rules r --domain d", "explain --rules r --domain d =b"] {
        assert_eq!(exit_code(line), Some(2), "{line}");
    }
}

fn validate_with(arguments: &[&str], input: impl AsRef<[u8]>) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ratelimitd"))
        .arg("validate")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(input.as_ref()).expect("the binary reads its input");
    let output = child.wait_with_output().expect("an end");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn validate_reads_rules_from_standard_input() {
    let (code, out, error) = validate_with(&["-"], "domain: d\ndescriptors: [{ key: a, value: b }]\n");
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("1 file, 1 domain, 0 rules"), "{out}");
    let (code, _, error) = validate_with(&["-"], "domain: d\nnonsense: 1\n");
    assert_eq!(code, Some(1));
    assert_eq!(error, "-:2: config error, unknown key 'nonsense'\n1 error, 0 warnings\n");
}

#[test]
fn rules_may_be_utf_16_and_control_characters_are_refused() {
    let rules = "\u{feff}domain: d\ndescriptors: [{ key: é, value: 😀 }]\n";
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        let text: Vec<u8> = rules.encode_utf16().flat_map(bytes).collect();
        let (code, out, error) = validate_with(&["-"], &text);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
        let (code, _, error) = validate_with(&["-"], &text[..text.len() - 1]);
        assert_eq!(code, Some(1));
        assert!(error.starts_with("-:2: error loading config file: the file begins as UTF-16"), "{error}");
    }
    let (code, _, error) = validate_with(&["-"], "domain: d\n# \u{1b}[0m\n");
    assert_eq!(code, Some(1));
    let expected = "-:2: error loading config file: control characters are not allowed (U+001B)\n";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn validate_without_a_path_reads_the_path_of_the_settings() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = directory.path().join("settings.yaml");
    let rules = directory.path().join("nowhere");
    std::fs::write(&settings, format!("rules: {{ path: {} }}\n", rules.display())).expect("a file");
    let (code, _, error) = validate_with(&["--config", settings.to_str().expect("UTF-8")], "");
    assert_eq!(code, Some(1));
    let first = format!("rules.path: {}\n{}: cannot read the path", rules.display(), rules.display());
    assert!(error.starts_with(&first), "{error}");
}
