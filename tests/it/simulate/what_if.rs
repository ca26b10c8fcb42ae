//! What other numbers would do to a limit: decided by the algorithm of the limit, with its burst.

use std::path::Path;

use serde_json::{Value, json};

use super::{Ended, Simulation, open_page};

const T0_MS: u64 = 1_776_284_220_000;
const MAP: &str = "
domain: d
time: { from: t, unit: ms }
cost: { from: cost }
descriptors:
  - - { key: user, from: user }
good: code == 200
";

fn rules(units: u64, rest: &str) -> String {
    format!(
        "domain: d\ndescriptors:\n  - {{ key: user, rate_limit: {{ name: users, unit: second, \
         requests_per_unit: {units}, {rest} }} }}\n"
    )
}

/// Bursts of twelve users for some seconds, some of several units.
fn log() -> String {
    let mut random = 11_u64;
    let mut next = |below: u64| {
        // Knuth's MMIX.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut t_ms = T0_MS;
    let mut line = |_| {
        t_ms += next(20);
        let (user, cost) = (next(12).min(next(12)), 1 + next(8) / 7);
        let code = if user == 0 { 500 } else { 200 };
        format!("{{\"t\":{t_ms},\"user\":\"u{user}\",\"code\":{code},\"cost\":{cost}}}\n")
    };
    (0..2_000).map(&mut line).collect()
}

fn points(ended: &Ended) -> Vec<Value> {
    ended.report["rules"][0]["what_if"]["points"].as_array().expect("points").clone()
}

#[test]
fn each_point_is_what_a_rule_file_with_this_number_does() {
    let table = [
        ("algorithm: gcra, burst: 20", json!(20)),
        ("algorithm: gcra", Value::Null),
        ("algorithm: token_bucket, refill: interval, burst: 9", json!(9)),
        ("algorithm: sliding_window, charging: postpaid", Value::Null),
        ("algorithm: sliding_log", Value::Null),
    ];
    let log = log();
    let simulate = |units, rest| {
        let simulation = Simulation::new(&rules(units, rest)).map(MAP).log("a.json", &log);
        simulation.with(&["--recommend"]).succeed()
    };
    for (rest, held_burst) in table {
        let ended = simulate(4, rest);
        let what_if = &ended.report["rules"][0]["what_if"];
        assert_eq!((&what_if["held_burst"], &what_if["is_exact"]), (&held_burst, &json!(true)), "{rest}");
        let points = points(&ended);
        let numbers: Vec<u64> =
            points.iter().map(|point| point["limit"].as_u64().expect("a limit")).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128], "{rest}");
        // Beyond 24 units the sum of all requests in a second is near.
        for (units, point) in numbers.into_iter().zip(points).take(9) {
            let alone = simulate(units, rest);
            let found = ["over", "good_over", "keys_over"].map(|field| json!(alone.of_rule("users", field)));
            let expected = ["denied", "good_denied", "keys_over"].map(|field| point[field].clone());
            assert_eq!(found, expected, "{units} {rest}");
        }
    }
}

#[test]
fn other_numbers_are_tried_only_for_those_who_ask() {
    let simulation = || Simulation::new(&rules(4, "algorithm: gcra")).map(MAP).log("a.json", log());
    let with_page = simulation();
    let page = with_page.path("page.html").display().to_string();
    let simulations = [
        (simulation(), 0),
        (simulation().with(&["--recommend"]), 14),
        (with_page.with(&["--report", &page]), 14),
    ];
    for (place, (simulation, tried)) in simulations.iter().enumerate() {
        assert_eq!(points(&simulation.succeed()).len(), *tried, "{place}");
    }
    let windows = Simulation::new(&rules(4, "algorithm: fixed_window")).map(MAP).log("a.json", log());
    assert!(points(&windows.succeed()).len() > 10, "they are read off the counts of windows");
}

#[test]
fn a_limit_whose_burst_suffices_is_not_recommended_to_be_higher() {
    let rules = "domain: edge\ndescriptors:\n  - key: remote_address\n    rate_limit: { name: per-client, \
                 algorithm: gcra, unit: second, requests_per_unit: 2, burst: 20 }\n";
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/simulate");
    let simulation = Simulation::new(rules);
    let html = simulation.path("page.html").display().to_string();
    let path = |name: &str| example.join(name).display().to_string();
    let (map, log) = (path("map.yaml"), path("access.log.gz"));
    let simulation = simulation.with(&["--recommend", "--map", &map, "--report", &html, &log]);
    let ended = simulation.succeed();
    let rule = &ended.report["rules"][0];
    // One key of 2,074: two may be over.
    assert_eq!((&rule["keys"], &rule["keys_over"]), (&json!(2_074), &json!(1)));
    let judged = points(&ended).into_iter().find(|point| point["limit"] == 2).expect("the judged limit");
    assert_eq!((&judged["denied"], &judged["keys_over"]), (&rule["over"], &rule["keys_over"]));
    let found = &rule["recommendation"];
    assert_eq!((&found["needed"], &found["limit"]), (&json!(2), &json!(3)), "{found}");
    let note = "3 per 1s is recommended for per-client with the burst of 20.";
    assert!(ended.stdout.contains(note), "{}", ended.stdout);
    let mut page = open_page(Path::new(&html));
    let effect = page.texts("output").remove(0);
    assert!(effect.starts_with("2 per 1 s: 24,417 requests over it"), "{effect}");
    assert!(effect.ends_with("1 key hit of 2,074"), "{effect}");
    let note = "Each limit was decided as gcra of its own, with the burst of 20.";
    assert_eq!(page.texts(".what-if .note")[0], note);
}

#[test]
fn there_is_no_recommendation_if_no_number_helps() {
    // 300 users, each with ten requests at once: a burst of five denies half of them at any rate.
    let line = |at: u64| {
        format!("{{\"t\":{},\"user\":\"u{}\",\"code\":200}}\n", T0_MS + at / 3_000 * 10_000, at / 10 % 300)
    };
    let log: String = (0..6_000).map(line).collect();
    let simulation = Simulation::new(&rules(4, "algorithm: gcra, burst: 5")).map(MAP).log("a.json", log);
    let ended = simulation.with(&["--recommend"]).succeed();
    let reason = "no limit that was tried affects few enough keys and requests";
    assert_eq!(ended.report["rules"][0]["recommendation"]["no_recommendation"], reason);
    let note = format!("No recommendation for users: {reason}, with the burst of 5.");
    assert!(ended.stdout.contains(&note), "{}", ended.stdout);
}
