//! Two rule sets, several algorithms, and a recommendation on one log.

use serde_json::{Value, json};

use super::Simulation;

const T0: u64 = 1_776_284_220_000_000;

fn line(t_us: u64, user: &str) -> String {
    format!(
        "{{\"t_us\":{t_us},\"domain\":\"d\",\"descriptors\":[{{\"entries\":[{{\"key\":\"user\",\"value\":\"{user}\"}}]}}]}}\n"
    )
}

fn rules(limit: u32, algorithm: &str) -> String {
    format!(
        "domain: d\ndescriptors:\n  - {{ key: user, rate_limit: {{ name: users, unit: minute, \
         requests_per_unit: {limit}, algorithm: {algorithm} }} }}\n"
    )
}

/// In one minute: user n sends n requests.
fn staircase(users: u64) -> String {
    let mut requests: Vec<(u64, u64)> =
        (1..=users).flat_map(|user| (0..user).map(move |at| (at * 10_000, user))).collect();
    requests.sort_unstable();
    requests.iter().map(|(at, user)| line(T0 + at, &format!("u{user}"))).collect()
}

fn point(report: &Value, limit: u64) -> (u64, u64) {
    let points = report["rules"][0]["what_if"]["points"].as_array().expect("points");
    let found =
        points.iter().find(|point| point["limit"] == limit).unwrap_or_else(|| panic!("no point {limit}"));
    (found["denied"].as_u64().expect("a count"), found["keys_over"].as_u64().expect("a count"))
}

#[test]
fn what_if_is_what_the_other_limit_would_have_done() {
    let log = staircase(40);
    let found = Simulation::new(&rules(20, "fixed_window")).log("log.jsonl", &log).succeed();
    assert_eq!(found.report["rules"][0]["what_if"]["is_exact"], true);
    for limit in [5, 12, 20, 33, 39, 40] {
        let other = Simulation::new(&rules(limit, "fixed_window")).log("log.jsonl", &log).succeed();
        let real = (other.of_rule("users", "over"), other.of_rule("users", "keys_over"));
        assert_eq!(point(&found.report, u64::from(limit)), real, "limit {limit}");
    }
    let points = found.report["rules"][0]["what_if"]["points"].as_array().expect("points");
    assert_eq!(points.last().expect("a point")["denied"], 0);
}

#[test]
fn a_change_of_rules_shows_who_is_newly_denied_and_who_is_freed() {
    let log = staircase(40);
    let simulation = |new, old: u32| {
        Simulation::new(&rules(new, "fixed_window"))
            .file("--compare", "old.yaml", rules(old, "fixed_window").as_bytes())
            .log("log.jsonl", &log)
            .succeed()
    };
    let tighter = simulation(20, 30);
    let comparison = &tighter.report["comparison"];
    // Users 21 to 30 are new; users 31 to 40 were denied before and are denied more often.
    assert_eq!(comparison["keys_newly_over"], 10);
    assert_eq!((&comparison["keys_freed"], &comparison["only_old_denies"]), (&json!(0), &json!(0)));
    let old_over = (1..=10).sum::<u64>();
    assert_eq!(comparison["both_deny"], old_over);
    assert_eq!(comparison["only_new_denies"], (1..=20).sum::<u64>() - old_over);
    assert_eq!(tighter.report["rules"][0]["old"]["over"], old_over);
    let looser = simulation(30, 20);
    assert_eq!(
        (&looser.report["comparison"]["keys_freed"], &looser.report["comparison"]["keys_newly_over"]),
        (&json!(10), &json!(0))
    );
    assert!(
        looser.stdout.contains("Keys newly over a limit: 0; no longer over one: 10"),
        "{}",
        looser.stdout
    );
}

#[test]
fn a_limit_is_tried_as_every_algorithm() {
    // 10 requests before a full minute, and 10 after it: a fixed window of 10 admits all, a sliding one half.
    let burst = |start: u64| (0..10).map(move |at| line(start + at * 1_000, "u")).collect::<String>();
    let log = burst(T0 + 59_900_000) + &burst(T0 + 60_100_000);
    let ended =
        Simulation::new(&rules(10, "fixed_window")).log("log.jsonl", &log).with(&["--algorithms"]).succeed();
    let algorithms = ended.report["algorithms"][0]["algorithms"].as_array().expect("a list").clone();
    let found: Vec<(&str, u64, u64)> = algorithms
        .iter()
        .map(|counts| {
            let number = |field: &str| counts[field].as_u64().expect("a count");
            (counts["algorithm"].as_str().expect("a name"), number("burst"), number("over"))
        })
        .collect();
    let expected = [
        ("fixed_window", 10, 0),
        ("fixed_window", 10, 0),
        ("sliding_window", 10, 10),
        ("sliding_log", 10, 10),
        ("gcra", 10, 10),
        ("gcra", 1, 19),
    ];
    assert_eq!(found, expected);
    assert_eq!(algorithms[0]["is_own"], true);
}

#[test]
fn an_unlimited_limit_that_counts_moves_no_row() {
    let unlimited = "  - { key: user, value: vip, rate_limit: { unlimited: true, count: true, unit: day, algorithm: fixed_window } }\n";
    let rules = rules(1, "fixed_window").replace("descriptors:\n", &format!("descriptors:\n{unlimited}"));
    let log = line(T0, "vip") + &line(T0 + 1, "u") + &line(T0 + 2, "u");
    let ended = Simulation::new(&rules).log("log.jsonl", &log).with(&["--algorithms"]).succeed();
    let labels = |list: &str| -> Vec<Value> {
        ended.report[list].as_array().expect("a list").iter().map(|rule| rule["rule"].clone()).collect()
    };
    assert_eq!((labels("rules"), labels("algorithms")), (vec![json!("users")], vec![json!("users")]));
}

#[test]
fn limits_that_are_equal_as_another_algorithm_do_not_share_a_counter() {
    // Two limits of 10 per minute. As fixed windows they are equal: each is asked for one unit per request.
    let rules = "domain: d\ndescriptors:\n  - key: user\n    rate_limits:\n      \
                 - { name: window, unit: minute, requests_per_unit: 10, algorithm: fixed_window }\n      \
                 - { name: bucket, unit: minute, requests_per_unit: 10, algorithm: gcra }\n";
    let log: String = (0..12).map(|at| line(T0 + at, "u")).collect();
    let ended = Simulation::new(rules).log("log.jsonl", &log).with(&["--algorithms"]).succeed();
    let of_rule = |rule: usize| {
        let counts = ended.report["algorithms"][rule]["algorithms"].as_array().expect("a list").iter();
        counts.map(|counts| (counts["asked"].clone(), counts["over"].clone())).collect::<Vec<_>>()
    };
    // As configured; as the four algorithms that admit 10 at once, and as GCRA with a burst of 1.
    let expected = [(12, 2), (12, 2), (12, 2), (12, 2), (12, 2), (12, 11)].map(|(a, b)| (json!(a), json!(b)));
    assert_eq!(of_rule(0), expected);
    assert_eq!(of_rule(1), expected);
}

#[test]
fn the_worst_keys_are_shown_by_algorithm() {
    // User n sends n requests before a full minute, and n after it.
    let burst = |start: u64, user: u64| (0..user).map(move |at| (start + at * 1_000, user));
    let mut requests: Vec<(u64, u64)> =
        (1..=14).flat_map(|user| burst(T0 + 59_900_000, user).chain(burst(T0 + 60_100_000, user))).collect();
    requests.sort_unstable();
    let log: String = requests.iter().map(|(at, user)| line(*at, &format!("u{user}"))).collect();
    let simulation = Simulation::new(&rules(10, "fixed_window")).log("log.jsonl", &log);
    let ended = simulation.with(&["--algorithms", "--show-keys"]).succeed();
    let keys = ended.report["worst_keys"].as_array().expect("keys").clone();
    let found: Vec<(&str, u64, Vec<u64>)> = keys
        .iter()
        .map(|key| {
            let counts = key["algorithms"].as_array().expect("algorithms").iter();
            let over = counts.map(|count| count["over"].as_u64().expect("a count")).collect();
            (key["key"].as_str().expect("a key"), key["asked"].as_u64().expect("a count"), over)
        })
        .collect();
    // As configured; fixed window, sliding window, sliding log, GCRA with a burst of 10 and of 1.
    let expected = [
        ("{d|user=u14}", 28, vec![8, 8, 18, 18, 18, 27]),
        ("{d|user=u13}", 26, vec![6, 6, 16, 16, 16, 25]),
        ("{d|user=u12}", 24, vec![4, 4, 14, 14, 14, 23]),
    ];
    assert_eq!(found, expected);
    let without = Simulation::new(&rules(10, "fixed_window")).log("log.jsonl", &log).succeed();
    assert_eq!(without.report["worst_keys"], json!([]));
}

#[test]
fn a_key_that_only_another_algorithm_denies_is_a_worst_key() {
    let burst = |start: u64| (0..10).map(move |at| line(start + at * 1_000, "u")).collect::<String>();
    let log = burst(T0 + 59_900_000) + &burst(T0 + 60_100_000);
    let ended =
        Simulation::new(&rules(10, "fixed_window")).log("log.jsonl", &log).with(&["--algorithms"]).succeed();
    let key = &ended.report["worst_keys"][0];
    assert_eq!((&key["asked"], &key["algorithms"][0]["over"]), (&json!(20), &json!(0)), "{key}");
    assert_eq!(key["algorithms"][4]["over"], 10);
    assert_eq!(key["key"].as_str().map(str::len), Some(16), "hashed");
}

#[test]
fn the_recommended_limit_touches_few_keys() {
    // 1,000 users with 1 to 20 requests in each of three minutes, and one with 500.
    let mut requests = Vec::new();
    for minute in 0..3 {
        for user in 0..1_000_u64 {
            requests.extend((0..1 + user % 20).map(|at| (minute * 60_000_000 + at * 1_000_000, user)));
        }
        requests.extend((0..500).map(|at| (minute * 60_000_000 + at * 10_000, 5_000)));
    }
    requests.sort_unstable();
    let log: String = requests.iter().map(|(at, user)| line(T0 + at, &format!("u{user}"))).collect();
    let map_less = Simulation::new(&rules(1, "fixed_window")).log("log.jsonl", &log).with(&["--recommend"]);
    let ended = map_less.succeed();
    let found = &ended.report["rules"][0]["recommendation"];
    // Without `good` all requests count as good, and the heaviest user has far more than 0.01 % of them.
    assert_eq!((&found["needed"], &found["limit"]), (&json!(499), &json!(600)), "{found}");
    assert_eq!(found["max_keys_ppm"], 1_000);
    let few =
        Simulation::new(&rules(5, "gcra")).log("log.jsonl", staircase(10)).with(&["--recommend"]).succeed();
    assert_eq!(
        few.report["rules"][0]["recommendation"]["no_recommendation"],
        "not enough data: 10 of the 200 keys that are needed"
    );
    let note = "No recommendation for users: not enough data: 10 of the 200 keys that are needed.";
    assert!(few.stdout.contains(note), "{}", few.stdout);
}

#[test]
fn keys_are_hashed_unless_they_are_asked_for() {
    let simulation = Simulation::new(&rules(1, "fixed_window")).log("log.jsonl", staircase(3));
    let hashed = simulation.succeed();
    let keys = hashed.report["rules"][0]["top_denied"].as_array().expect("keys").clone();
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| key["key"].as_str().is_some_and(|key| key.len() == 16)), "{keys:?}");
    let shown = simulation.with(&["--show-keys"]).succeed();
    let first = &shown.report["rules"][0]["top_denied"][0];
    assert_eq!(
        (&first["key"], &first["over"], &first["asked"]),
        (&json!("{d|user=u3}"), &json!(2), &json!(3))
    );
}

#[test]
fn keys_are_listed_below_the_table_if_they_are_asked_for() {
    let simulation = Simulation::new(&rules(1, "fixed_window")).log("log.jsonl", staircase(13));
    assert!(!simulation.succeed().stdout.contains("key of users"), "a key may name a person");
    let shown = simulation.with(&["--show-keys"]).succeed();
    let expected = "\
over  asked  key of users
  12     13  {d|user=u13}
  11     12  {d|user=u12}
";
    assert!(shown.stdout.contains(expected), "{}", shown.stdout);
    assert!(shown.stdout.contains("   3      4  {d|user=u4}\nand 2 more keys\n\n"), "{}", shown.stdout);
}

#[test]
fn no_two_algorithms_of_a_limit_have_one_label() {
    // As GCRA the first limit has a burst of 1, whether the whole limit or a tenth of it is admitted at once.
    let rules = "domain: d\ndescriptors:\n  - key: user\n    rate_limits:\n      \
                 - { unit: second, requests_per_unit: 1 }\n      \
                 - { unit: minute, requests_per_unit: 20, algorithm: gcra }\n";
    let log: String = (0..40).map(|at| line(T0 + at * 400_000, "u")).collect();
    let ended = Simulation::new(rules).log("log.jsonl", &log).with(&["--algorithms"]).succeed();
    let counts = ended.report["algorithms"][0]["algorithms"].as_array().expect("a list").clone();
    let labels: Vec<(&str, &Value)> =
        counts.iter().map(|counts| (counts["label"].as_str().expect("a label"), &counts["over"])).collect();
    assert_eq!(
        labels.iter().map(|(label, _)| *label).collect::<Vec<_>>(),
        [
            "fixed_window postpaid (as configured)",
            "fixed_window",
            "sliding_window",
            "sliding_log",
            "gcra burst 1 (the limit)",
            "gcra burst 1 (a tenth)"
        ]
    );
    assert_ne!(labels[4].1, labels[5].1, "the other limit differs");
    let note = format!(
        "d.user 1/1s, over limit: {} {}; with all limits as fixed_window {}, ",
        labels[0].0, labels[0].1, labels[1].1
    );
    assert!(ended.stdout.contains(&note), "{note}\n{}", ended.stdout);
    assert!(
        ended.stdout.contains("d.user 20/1m, over limit: gcra burst 20 (as configured) "),
        "{}",
        ended.stdout
    );
}

#[test]
fn keys_with_a_tier_do_not_raise_the_recommended_limit() {
    // In the first, third and fifth minute: 1,000 users with 1 to 20 requests, and 20 users of a tier with 300.
    let mut requests: Vec<(u64, String)> = Vec::new();
    for start_us in [0, 120_000_000, 240_000_000] {
        for user in 0..1_000_u64 {
            requests.extend((0..=user % 20).map(|at| (start_us + at * 1_000_000, format!("u{user}"))));
        }
        for user in 0..20 {
            requests.extend((0..300).map(|at| (start_us + at * 100_000, format!("pro{user}"))));
        }
    }
    requests.sort_unstable();
    let log: String = requests.iter().map(|(at, user)| line(T0 + at, user)).collect();
    let rows: String = (0..20).map(|user| format!("d,user,pro{user},pro\n")).collect();
    let rows = format!("domain,key,value,tier\n{rows}");
    // (the algorithm, the smallest number of the rule that denies nobody)
    for (algorithm, needed) in [("fixed_window", 20), ("sliding_window", 20)] {
        let rules = |tiers: &str| {
            format!(
                "domain: d\ndescriptors:\n  - {{ key: user, rate_limit: {{ name: users, unit: minute, \
                 requests_per_unit: 20, algorithm: {algorithm}{tiers} }} }}\n"
            )
        };
        let with_tiers = Simulation::new(&rules(", tiers: { pro: 300 }"))
            .file("--exceptions", "rows.csv", rows.as_bytes())
            .log("log.jsonl", &log)
            .with(&["--recommend"])
            .succeed();
        let rule = &with_tiers.report["rules"][0];
        assert_eq!((&rule["keys"], &rule["over"]), (&json!(1_020), &json!(0)), "{algorithm}");
        assert_eq!(rule["recommendation"]["needed"], needed, "{algorithm}: {}", rule["recommendation"]);
        // The curve, too, is of the keys that have the number of the rule.
        assert_eq!(point(&with_tiers.report, 20), (0, 0), "{algorithm}");
        let without = Simulation::new(&rules("")).log("log.jsonl", &log).with(&["--recommend"]).succeed();
        let rule = &without.report["rules"][0];
        assert_eq!(rule["over"], 3 * 20 * 280, "{algorithm}");
        assert!(rule["recommendation"]["needed"].as_u64() > Some(needed), "{algorithm}: {rule}");
    }
}
