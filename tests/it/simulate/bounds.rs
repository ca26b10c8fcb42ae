//! The bounds of a pull request.

use super::{Ended, RULES, Simulation, show_page};
use crate::support::chromium::{Chromium, Colors};

const MAP: &str = "domain: edge\ndescriptors:\n  - - { key: remote_address, from: remote_addr }\n";
/// The rules without the one that no log meets.
const MET: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { name: per-address, unit: minute, requests_per_unit: 5, algorithm: fixed_window }
";

/// Ten requests of one address in a minute: half are over five per minute.
fn log() -> String {
    let line = |second| {
        format!(
            "192.0.2.1 - - [15/Apr/2026:20:17:{second:02} +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl\"\n"
        )
    };
    (0..10).map(line).collect()
}

#[test]
fn a_broken_bound_ends_with_code_3_and_names_the_rule() {
    let good = format!("{MAP}good: code < 400\n");
    let table = [
        (
            &["--max-denied", "49.9999%"][..],
            3,
            "--max-denied 49.9999% is broken by per-address: 5 of 10 requests",
        ),
        (&["--max-denied", "50%"], 0, ""),
        (&["--max-good-denied", "10%"], 3, "5 of 10 good requests"),
        (&["--max-keys-hit", "0"], 3, "per-address: 1 of 1 keys"),
        (&["--max-keys-hit", "1", "--max-denied", "100%"], 0, ""),
    ];
    for (bounds, code, reason) in table {
        let ended = Simulation::new(MET).map(&good).log("a.log", log()).with(bounds).run();
        assert_eq!(ended.code, code, "{bounds:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{bounds:?}: {}", ended.stderr);
        let checks = ended.report["bounds"].as_array().expect("bounds");
        assert_eq!(checks.iter().all(|check| check["is_kept"] == true), code == 0, "{checks:?}");
    }
}

/// Checks that each bound ends with code 2 and this line on standard error, and that `--allow-unmet` accepts it.
fn is_not_tested(browser: &mut Chromium, simulate: impl Fn() -> Simulation, reason: &str) {
    for bound in [&["--max-denied", "100%"], &["--max-keys-hit", "1000"]] {
        let simulation = simulate().with(bound);
        let html = simulation.path("page.html").display().to_string();
        let simulation = simulation.with(&["--report", &html]);
        let Ended { code, stderr, report, .. } = simulation.run();
        assert_eq!((code, stderr), (2, format!("{reason}; --allow-unmet accepts that\n")), "{bound:?}");
        assert_eq!(report["untested"], serde_json::json!([reason]));
        show_page(browser, &simulation.path("page.html"));
        assert_eq!(browser.texts(".bounds li:last-child"), [format!("not tested{reason}")]);
        let accepted = simulation.with(&["--allow-unmet"]).succeed();
        assert_eq!(accepted.stderr, "");
    }
    // Without a bound there is nothing to test.
    assert_eq!(simulate().succeed().stderr, "");
}

#[test]
fn bounds_are_not_tested_by_an_empty_log() {
    let mut browser = Chromium::start(Colors::Light);
    is_not_tested(
        &mut browser,
        || Simulation::new(MET).map(MAP).log("a.log", ""),
        "no rule is tested: the log has no lines",
    );
    let keep = format!("{MAP}keep: code == 500\n");
    is_not_tested(
        &mut browser,
        || Simulation::new(MET).map(&keep).log("a.log", log()),
        "no rule is tested: the map's `keep` leaves out all 10 lines",
    );
}

#[test]
fn bounds_are_not_tested_by_a_map_of_another_domain() {
    let mut browser = Chromium::start(Colors::Light);
    let map = MAP.replace("edge", "shop");
    is_not_tested(
        &mut browser,
        || Simulation::new(MET).map(&map).log("a.log", log()),
        "no rule of the domain edge is tested: the map sends the domain shop",
    );
}

#[test]
fn bounds_are_not_tested_if_no_line_has_the_field_of_a_descriptor() {
    let mut browser = Chromium::start(Colors::Light);
    let hop = MAP.replace("remote_addr }", "remote_addr, take: trusted-hop 2 }");
    is_not_tested(
        &mut browser,
        || Simulation::new(MET).map(&hop).log("a.log", log()),
        "no rule is tested: the map sends no remote_address: no line has a trusted-hop 2 in remote_addr",
    );
    // nginx writes `-` for a request without a user.
    let rules =
        format!("{MET}  - {{ key: api_key, rate_limit: {{ unit: second, requests_per_unit: 1 }} }}\n");
    let user = format!("{MAP}  - - {{ key: api_key, from: remote_user }}\n");
    is_not_tested(
        &mut browser,
        || Simulation::new(&rules).map(&user).log("a.log", log()),
        "edge.api_key is not tested: the map sends no api_key: no line has a value in remote_user",
    );
    is_not_tested(
        &mut browser,
        || Simulation::new(&rules).map(MAP).log("a.log", log()),
        "edge.api_key is not tested: the map sends no api_key",
    );
}

#[test]
fn bounds_are_not_tested_on_a_rule_that_no_request_meets() {
    let mut browser = Chromium::start(Colors::Light);
    let rules = format!(
        "{MET}  - {{ key: path, value: /login, rate_limit: {{ unit: second, requests_per_unit: 1 }} }}\n"
    );
    let path = format!("{MAP}  - - {{ key: path, from: path }}\n");
    is_not_tested(
        &mut browser,
        || Simulation::new(&rules).map(&path).log("a.log", log()),
        "edge.path_/login is not tested: no request matched it",
    );
}

#[test]
fn a_bound_on_good_requests_is_not_tested_without_good_requests() {
    let map = format!("{MAP}good: code == 500\n");
    let simulation = || Simulation::new(MET).map(&map).log("a.log", log());
    let ended = simulation().with(&["--max-good-denied", "0.01%"]).run();
    let reason = "no false positive is tested: the map's `good` matches no request";
    assert_eq!((ended.code, ended.stderr), (2, format!("{reason}; --allow-unmet accepts that\n")));
    assert_eq!(simulation().with(&["--max-denied", "50%"]).succeed().stderr, "");
}

#[test]
fn a_broken_bound_is_told_beside_a_rule_that_is_not_tested() {
    let ended = Simulation::new(RULES).map(MAP).log("a.log", log()).with(&["--max-denied", "1%"]).run();
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(ended.code, 3);
    assert_eq!(
        lines,
        [
            "edge.never is not tested: the map sends no never; --allow-unmet accepts that",
            "--max-denied 1% is broken by per-address: 5 of 10 requests are over the limit (50 %)"
        ]
    );
}

#[test]
fn many_rules_that_no_request_meets_are_not_all_named() {
    let rule =
        |number| format!("  - {{ key: k{number}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n");
    let rules = MET.to_owned() + &(0..100).map(rule).collect::<String>();
    let ended = Simulation::new(&rules).map(MAP).log("a.log", log()).with(&["--max-denied", "90%"]).run();
    assert_eq!((ended.code, ended.stderr.lines().count()), (2, 21), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("further rules are not tested; --allow-unmet accepts that\n"));
    assert_eq!(ended.report["unmet_rules"].as_array().map(Vec::len), Some(100));
}

#[test]
fn a_bound_that_cannot_be_checked_is_refused() {
    let ended = Simulation::new(RULES).map(MAP).log("a.log", log()).with(&["--max-good-denied", "1%"]).run();
    assert!(ended.code == 2 && ended.stderr.contains("`good`"), "{}", ended.stderr);
    let ended = Simulation::new(RULES).map(MAP).log("a.log", log()).with(&["--max-denied", "0.5"]).run();
    assert!(ended.code == 2 && ended.stderr.contains("0.5%"), "{}", ended.stderr);
}
