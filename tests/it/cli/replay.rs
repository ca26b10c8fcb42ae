//! `replay`: known answers, the same bytes from memory and from Redis, and clear errors.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use ::simulate::replay::{MemoryReplay, ReplayStore, replay};
use engine::{Defaults, RuleSet, ValueHashing};
use rules::{CalendarOptions, CalendarYears, LoadOptions, RuleDirectory, load};
use tempfile::NamedTempFile;

/// A minute boundary.
pub(crate) const T0: u64 = 1_700_000_040_000_000;

const RULES: &str = "
domain: d
descriptors:
  - { key: fixed, rate_limit: { unit: second, requests_per_unit: 10, algorithm: fixed_window } }
  - { key: log, rate_limit: { unit: second, unit_multiplier: 10, requests_per_unit: 3, algorithm: sliding_log } }
  - { key: sliding, rate_limit: { unit: minute, requests_per_unit: 50, algorithm: sliding_window } }
  - { key: gcra, rate_limit: { unit: second, requests_per_unit: 3, burst: 5, algorithm: gcra } }
  - { key: interval, rate_limit: { unit: second, requests_per_unit: 2, burst: 7, algorithm: token_bucket, refill: interval } }
  - { key: queue, rate_limit: { unit: second, requests_per_unit: 4, algorithm: leaky_bucket, mode: queue } }
  - { key: reference, rate_limit: { unit: second, requests_per_unit: 6 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 2, algorithm: gcra } }
  - { key: quota, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 3, algorithm: gcra } }
  - { key: unlimited, rate_limit: { unlimited: true } }
  - key: both
    rate_limits:
      - { unit: second, requests_per_unit: 2, algorithm: sliding_log }
      - { unit: minute, requests_per_unit: 9, algorithm: sliding_window }
";

pub(crate) const KEYS: [&str; 12] = [
    "fixed",
    "log",
    "sliding",
    "gcra",
    "interval",
    "queue",
    "reference",
    "shadow",
    "quota",
    "unlimited",
    "both",
    "unknown",
];

fn file(text: &str, suffix: &str) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("room for the text");
    file
}

pub(crate) fn rules() -> RuleSet {
    rules_of(RULES)
}

/// The rules of this text.
pub(crate) fn rules_of(text: &str) -> RuleSet {
    let file = file(text, ".yaml");
    let options = LoadOptions {
        merge_domains: false,
        defaults: Defaults::ENVOY_RATELIMIT,
        hashing: ValueHashing::NONE,
        directory: RuleDirectory::YamlFiles,
        upgrades: Vec::new(),
        calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
        has_home: false,
    };
    load(&[file.path().to_owned()], options).unwrap_or_else(|problems| panic!("{problems}")).rules
}

pub(crate) fn line(t_us: u64, descriptors: &[(&str, u64, bool)]) -> String {
    let descriptor = |(key, hits, refund): &(&str, u64, bool)| {
        format!(
            r#"{{"entries":[{{"key":"{key}","value":"v"}}],"hits_addend":{hits},"is_negative_hits":{refund}}}"#
        )
    };
    let descriptors: Vec<_> = descriptors.iter().map(descriptor).collect();
    format!(r#"{{"t_us":{t_us},"domain":"d","descriptors":[{}]}}"#, descriptors.join(","))
}

pub(crate) fn replayed(store: &mut impl ReplayStore, requests: &str) -> String {
    let mut answers = Vec::new();
    replay(&rules(), store, (requests.as_bytes(), &mut answers), |_| {}).expect("every line is a request");
    String::from_utf8(answers).expect("answers are text")
}

/// Offset, cost, then `OK` or `NO`, remaining, retry_after, reset_after, next_after.
type Known = (u64, u64, &'static str, [i64; 4]);

const FIXED: [Known; 4] = [
    (0, 4, "OK", [6, 0, 1_000_000, 1_000_000]),
    (1, 7, "NO", [6, 999_999, 999_999, 999_999]),
    (2, 6, "OK", [0, 0, 999_998, 999_998]),
    (4, 11, "NO", [0, -1, 999_996, 999_996]),
];
const LOG: [Known; 6] = [
    (0, 1, "OK", [2, 0, 10_000_000, 10_000_000]),
    (1_000_000, 1, "OK", [1, 0, 10_000_000, 9_000_000]),
    (2_000_000, 1, "OK", [0, 0, 10_000_000, 8_000_000]),
    (3_000_000, 1, "NO", [0, 7_000_000, 9_000_000, 7_000_000]),
    (9_999_999, 1, "NO", [0, 1, 2_000_001, 1]),
    (10_000_000, 1, "OK", [0, 0, 10_000_000, 1_000_000]),
];
const SLIDING: [Known; 4] = [
    (10_000_000, 42, "OK", [8, 0, 110_000_000, 51_428_572]),
    (65_000_000, 11, "OK", [0, 0, 115_000_000, 714_286]),
    (75_000_000, 7, "OK", [0, 0, 105_000_000, 714_286]),
    (75_000_000, 1, "NO", [0, 714_286, 105_000_000, 714_286]),
];

pub(crate) fn known_answers(store: &mut impl ReplayStore) {
    for (key, rows) in [("fixed", &FIXED[..]), ("log", &LOG[..]), ("sliding", &SLIDING[..])] {
        let requests: Vec<_> =
            rows.iter().map(|(offset, cost, ..)| line(T0 + offset, &[(key, *cost, false)])).collect();
        let answers = replayed(store, &requests.join("\n"));
        for ((offset, _, code, [remaining, retry, reset, next]), answer) in rows.iter().zip(answers.lines()) {
            let code = if *code == "OK" { "OK" } else { "OVER_LIMIT" };
            let expected = format!(
                r#"{{"t_us":{},"overall_code":"{code}","statuses":[{{"code":"{code}","rule":"d.{key}","limit_remaining":{remaining},"retry_after_us":{retry},"reset_after_us":{reset},"next_after_us":{next},"delay_us":0}}]}}"#,
                T0 + offset
            );
            assert_eq!(answer, expected);
        }
    }
}

#[test]
fn memory_gives_the_known_answers() {
    known_answers(&mut MemoryReplay::new());
}

/// Runs the sub-command with `requests` on standard input.
pub(crate) fn command(requests: impl AsRef<[u8]>, more: &[&str]) -> Output {
    let rules = file(RULES, ".yaml");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .arg("replay")
        .arg("--rules")
        .arg(rules.path())
        .args(["--requests", "-"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(requests.as_ref()).expect("the command reads its input");
    drop(input);
    child.wait_with_output().expect("the command ends")
}

#[test]
fn the_command_writes_answers_and_a_summary() {
    let requests: Vec<_> =
        (0..3).map(|n| line(T0 + n, &[("gcra", 2, false), ("unknown", 1, false)])).collect();
    let output = command(requests.join("\n"), &[]);
    assert_eq!(output.status.code(), Some(0));
    let answers = String::from_utf8(output.stdout).expect("text");
    assert_eq!(answers.lines().count(), 3);
    assert!(answers.lines().all(|answer| answer.ends_with(",null]}")), "{answers}");
    let summary = String::from_utf8(output.stderr).expect("text");
    assert_eq!(summary, "3 requests, 1 over limit\n  d.gcra: 1 of 3 over limit\n");
}

#[test]
fn the_first_invalid_line_is_an_error_and_the_lines_before_it_are_answered() {
    let good = line(T0, &[("gcra", 1, false)]);
    let table = [
        ("{", "line 3: EOF while parsing an object"),
        (r#"{"t_us":1,"domian":"d"}"#, "line 3: unknown field `domian`"),
        (r#"{"domain":"d","descriptors":[]}"#, "line 3: missing field `t_us`"),
        (
            r#"{"t_us":1,"domain":"d","descriptors":[]}"#,
            "line 3: rate limit descriptor list must not be empty",
        ),
        (r#"{"t_us":1,"domain":"","descriptors":[{}]}"#, "line 3: rate limit domain must not be empty"),
        (r#"{"t_us":4503599627370496,"domain":"d","descriptors":[{}]}"#, "line 3: t_us is 4503599627370496"),
    ];
    let long = " ".repeat((1 << 20) + 1);
    let table = table.into_iter().chain([(long.as_str(), "line 3: longer than 1048576 bytes")]);
    for (bad, expected) in table {
        let output = command(format!("{good}\n\n{bad}\n{good}\n"), &[]);
        assert_eq!(output.status.code(), Some(2), "{bad}");
        let problem = String::from_utf8(output.stderr).expect("text");
        assert!(problem.starts_with(expected), "{bad}: {problem}");
        assert_eq!(String::from_utf8(output.stdout).expect("text").lines().count(), 1, "{bad}");
    }
}

#[test]
fn a_line_that_is_not_utf_8_is_named_and_the_lines_before_it_are_answered() {
    let good = line(T0, &[("gcra", 1, false)]);
    let output = command([good.as_bytes(), b"\n\xff\n", good.as_bytes()].concat(), &[]);
    let problem = String::from_utf8(output.stderr).expect("text");
    assert_eq!(
        (output.status.code(), problem.trim_end()),
        (Some(2), "line 2: stream did not contain valid UTF-8")
    );
    assert_eq!(String::from_utf8(output.stdout).expect("text").lines().count(), 1);
}

#[test]
fn an_unreachable_redis_is_an_error_that_hides_the_password() {
    let output = command(line(T0, &[("gcra", 1, false)]), &["--redis", "redis://user:secret@127.0.0.1:1/"]);
    assert_eq!(output.status.code(), Some(2));
    let problem = String::from_utf8(output.stderr).expect("text");
    assert!(problem.starts_with("redis: ") && !problem.contains("secret"), "{problem}");
}
