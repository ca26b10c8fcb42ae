//! `--sample`: some of the keys, each with all of its requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Ended, Simulation};

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: users, unit: minute, requests_per_unit: 3, algorithm: sliding_window } }
  - key: path
    shadow_mode: true
    rate_limit: { name: paths, unit: minute, requests_per_unit: 400, algorithm: fixed_window }
";
const MAP: &str = "
domain: d
time: { from: t, unit: ms }
descriptors:
  - - { key: user, from: user }
  - - { key: path, from: path }
";
const USERS: u64 = 400;

/// In one minute: user n sends 5 requests, or 2 if n is odd.
fn log() -> String {
    let requests = (0..5)
        .flat_map(|at| (0..USERS).filter(move |user| at < 2 || user % 2 == 0).map(move |user| (at, user)));
    let line = |(at, user): (u64, u64)| {
        format!("{{\"t\":{},\"user\":\"u{user}\",\"path\":\"/\"}}\n", 1_776_284_220_000 + at * 10_000 + user)
    };
    requests.map(line).collect()
}

fn simulated(arguments: &[&str]) -> Ended {
    let simulation = Simulation::new(RULES).map(MAP).log("a.json", log());
    simulation.with(&["--format", "json", "--show-keys"]).with(arguments).run()
}

/// The requests over the limit and all requests of each key of a rule that is denied.
fn denied(report: &Value, rule: usize) -> BTreeMap<String, (u64, u64)> {
    let keys = report["rules"][rule]["top_denied"].as_array().expect("keys");
    let number = |key: &Value, field: &str| key[field].as_u64().expect("a count");
    let of_key = |key: &Value| {
        (key["key"].as_str().expect("a key").to_owned(), (number(key, "over"), number(key, "asked")))
    };
    keys.iter().map(of_key).collect()
}

#[test]
fn the_keys_of_a_sample_are_as_in_the_whole_log() {
    let sample = simulated(&["--sample", "1/8"]);
    assert_eq!(sample.code, 0, "{}", sample.stderr);
    let report = &sample.report;
    let (requests, left_out) = (
        report["totals"]["requests"].as_u64().expect("a count"),
        report["method"]["sample"]["left_out"].as_u64(),
    );
    assert_eq!(Some(sample.method("lines") - requests), left_out);
    assert_eq!(report["method"]["sample"]["one_in"], 8);
    let users = sample.of_rule("users", "keys");
    assert!((25..=75).contains(&users), "about 50: {users}");
    let found = denied(report, 0);
    assert_eq!(found.len() as u64, sample.of_rule("users", "keys_over"), "not more than are listed");
    assert!(found.len() > 10 && found.values().all(|counts| *counts == (2, 5)), "{found:?}");
    assert_eq!(report["rules"][0]["is_thinned"], false);
    assert_eq!(simulated(&["--sample", "1/8"]).report["rules"], report["rules"], "the same in each run");

    // The path gets about an eighth of 1,400 requests, and is decided by an eighth of its limit of 400.
    assert_eq!(report["rules"][1]["is_thinned"], true);
    assert_eq!(
        denied(report, 1),
        BTreeMap::from([("{d|path=/}".to_owned(), (sample.of_rule("paths", "asked") - 50, requests))])
    );
    assert!(
        sample.stdout.contains("A sample of 1/8 of the keys: all counts are of these"),
        "{}",
        sample.stdout
    );
    assert!(
        sample.stdout.contains("decided as 1/8 of the limit, a rough estimate: paths."),
        "{}",
        sample.stdout
    );
    assert!(sample.stdout.contains("In a sample of 1/8 of the keys the rules deny"), "{}", sample.stdout);
}

#[test]
fn a_sample_of_all_is_the_whole_log() {
    let (all, whole) = (simulated(&["--sample", "1/1"]), simulated(&[]));
    assert_eq!(all.report["rules"], whole.report["rules"]);
    assert_eq!(whole.report["method"]["sample"], json!({ "one_in": 1, "left_out": 0 }));
    assert!(!whole.stdout.contains("sample"), "{}", whole.stdout);
}

#[test]
fn a_bound_on_keys_is_one_of_the_whole_log() {
    // Half of 400 users are over their limit: about 25 of a sample of 1/8.
    let kept = simulated(&["--sample", "1/8", "--max-keys-hit", "400"]);
    assert_eq!(kept.code, 0, "{}", kept.stderr);
    let broken = simulated(&["--sample", "1/8", "--max-keys-hit", "70"]);
    assert_eq!(broken.code, 3);
    assert!(broken.stderr.contains("keys of a sample of 1/8 are over the limit"), "{}", broken.stderr);
}

#[test]
fn what_is_no_sample_is_refused() {
    let ended = simulated(&["--sample", "16"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("a sample is 1/N"), "{}", ended.stderr);
}
