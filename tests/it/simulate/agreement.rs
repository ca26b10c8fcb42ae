//! Decisions that a log has, against those of a simulation whose clock is coarser.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{Ended, Simulation, show_page};
use crate::support::chromium::{Chromium, Colors};

const T0_US: u64 = 1_776_284_220_000_000;
const MAP: &str = "
domain: d
time: { from: t, unit: ms }
descriptors:
  - - { key: user, from: user }
was_limited: code == 429
";

fn rules(algorithm: &str, limit: u32) -> String {
    format!(
        "domain: d\ndescriptors:\n  - {{ key: user, rate_limit: {{ name: users, unit: second, \
         requests_per_unit: {limit}, algorithm: {algorithm} }} }}\n"
    )
}

/// Requests of some users for half a minute. Each is decided up to 0.9 ms after it began, and the log has the
/// millisecond in which it began.
fn log(algorithm: &str) -> String {
    let mut random = 7_u64;
    let mut next = |below: u64| {
        // Knuth's MMIX.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut requests: Vec<(u64, u64, u64)> = Vec::new();
    let mut began_us = T0_US;
    while began_us < T0_US + 30_000_000 {
        began_us += next(3_000);
        requests.push((began_us + next(900), began_us / 1_000, next(5)));
    }
    requests.sort_unstable();
    let mut recorded = String::new();
    for (decided_us, _, user) in &requests {
        writeln!(
            recorded,
            "{{\"t_us\":{decided_us},\"domain\":\"d\",\"descriptors\":[{{\"entries\":[{{\"key\":\"user\",\
             \"value\":\"u{user}\"}}]}}]}}"
        )
        .expect("room");
    }
    let answers = replayed(&rules(algorithm, 10), &recorded);
    let mut log = String::new();
    for ((_, began_ms, user), answer) in requests.iter().zip(answers) {
        let code = if answer == "OVER_LIMIT" { 429 } else { 200 };
        writeln!(log, "{{\"t\":{began_ms},\"user\":\"u{user}\",\"code\":{code}}}").expect("room");
    }
    log
}

/// The answers of `replay`, which decides at the exact times.
fn replayed(rules: &str, requests: &str) -> Vec<String> {
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let paths = ["rules.yaml", "requests.jsonl"].map(|name| folder.path().join(name));
    std::fs::write(&paths[0], rules).expect("room");
    std::fs::write(&paths[1], requests).expect("room");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
    command.args(["replay", "--rules"]).arg(&paths[0]).arg("--requests").arg(&paths[1]);
    let output = command.output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = String::from_utf8(output.stdout).expect("text");
    let code = |line: &str| -> String {
        let answer: Value = serde_json::from_str(line).expect("JSON");
        answer["overall_code"].as_str().expect("a code").to_owned()
    };
    answers.lines().map(code).collect()
}

/// Differences, and those that do not vanish.
fn differences(ended: &Ended) -> (u64, u64) {
    let agreement = &ended.report["method"]["agreement"];
    let number = |value: &Value| value.as_u64().expect("a count");
    let all = number(&agreement["only_recorded"]) + number(&agreement["only_simulated"]);
    (all, all - number(&agreement["by_shift"][3]["vanished"]))
}

#[test]
fn differences_that_the_clock_of_the_log_makes_are_said_to_be_of_the_clock() {
    for algorithm in ["gcra", "fixed_window", "sliding_window", "sliding_log", "token_bucket"] {
        let ended = Simulation::new(&rules(algorithm, 10)).map(MAP).log("a.json", log(algorithm)).succeed();
        let (all, unexplained) = differences(&ended);
        assert!(all >= 20, "{algorithm}: {all} differences are too few for this test");
        // A sliding log remembers when each request was admitted: one difference makes further ones.
        let most = if algorithm == "sliding_log" { all / 2 } else { 2 };
        assert!(unexplained <= most, "{algorithm}: {unexplained} of {all}");
    }
}

#[test]
fn many_differences_of_other_rules_do_not_vanish() {
    let log = log("gcra");
    for (algorithm, limit) in [("gcra", 12), ("gcra", 8), ("fixed_window", 10)] {
        let ended = Simulation::new(&rules(algorithm, limit)).map(MAP).log("a.json", &log).succeed();
        let (all, unexplained) = differences(&ended);
        // Some vanish by chance: the simulation admits a request right after a unit has become free.
        assert!(all > 200 && unexplained > all / 4, "{algorithm} {limit}: {all} {unexplained}");
        assert!(
            ended.stdout.contains("vanish if the times of the log are a little wrong"),
            "{}",
            ended.stdout
        );
    }
}

#[test]
fn with_compare_the_log_is_compared_with_the_rules_in_force() {
    let simulation = Simulation::new(&rules("gcra", 3))
        .file("--compare", "old.yaml", rules("gcra", 10).as_bytes())
        .map(MAP)
        .log("a.json", log("gcra"));
    let ended = simulation.succeed();
    let (all, unexplained) = differences(&ended);
    let agreement = &ended.report["method"]["agreement"];
    assert_eq!(agreement["of"], json!("compare"));
    assert!(unexplained <= 2 && all < 1_000, "{agreement}");
    assert!(ended.report["totals"]["denied"].as_u64() > agreement["both_deny"].as_u64());
}

/// Requests of one second: user, how many, and how many of them the log has as denied.
fn one_second(users: &[(&str, usize, usize)]) -> String {
    let mut log = String::new();
    for (user, requests, denied) in users {
        for request in 0..*requests {
            let code = if request < *denied { 429 } else { 200 };
            let t = T0_US / 1_000 + request as u64;
            writeln!(log, "{{\"t\":{t},\"user\":\"{user}\",\"code\":{code}}}").expect("room");
        }
    }
    log
}

#[test]
fn the_denials_are_compared_before_all_decisions() {
    let table = [
        // 20 requests of a are over the limit of 10; the log denied 2 of b.
        (
            one_second(&[("a", 30, 0), ("b", 5, 2)]),
            "Of 2 recorded denials 0 are reproduced (0 %); 20 more are denied here only. 37.1428 % of all decisions are as \
             recorded.",
        ),
        (
            one_second(&[("a", 12, 0), ("b", 988, 0)]),
            "The log has no denials to compare with; 980 are made here only.",
        ),
        (one_second(&[("a", 10, 0)]), "Nothing to compare: no denial is recorded, and none is made."),
    ];
    let mut browser = Chromium::start(Colors::Light);
    for (log, sentence) in table {
        let simulation = Simulation::new(&rules("fixed_window", 10)).map(MAP).log("a.json", log);
        let html = simulation.path("page.html").display().to_string();
        let simulation = simulation.with(&["--format", "json", "--report", &html]);
        let ended = simulation.succeed();
        assert!(ended.stdout.contains(sentence), "{sentence}\n{}", ended.stdout);
        show_page(&mut browser, Path::new(&html));
        let method = browser.texts(".method").remove(0);
        assert!(method.contains(sentence), "{method}");
    }
    let simulation = Simulation::new(&rules("fixed_window", 10)).map(MAP);
    let part = simulation.log("a.json", one_second(&[("a", 30, 0), ("b", 5, 2)])).succeed();
    let agreement = &part.report["method"]["agreement"];
    assert_eq!((&agreement["reproduced_ppm"], &agreement["agreement_ppm"]), (&json!(0), &json!(371_428)));
    let none = Simulation::new(&rules("fixed_window", 10)).map(MAP).log("a.json", one_second(&[("a", 9, 0)]));
    assert_eq!(none.succeed().report["method"]["agreement"]["reproduced_ppm"], Value::Null);
    let empty = Simulation::new(&rules("fixed_window", 10)).map(MAP).log("a.json", "").succeed();
    assert_eq!(empty.report["method"]["agreement"], Value::Null);
    assert!(!empty.stdout.contains("recorded"), "{}", empty.stdout);
}
