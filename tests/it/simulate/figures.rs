//! The figures of keys and minutes, and limits that the clock of the log cannot resolve.

use serde_json::json;

use super::{Simulation, show_page};
use crate::support::chromium::{Chromium, Colors};

/// 2026-04-15T20:17:00Z.
const T0_S: u64 = 1_776_284_220;
const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: users, unit: minute, requests_per_unit: 2, algorithm: fixed_window } }
";
const MAP: &str = "
domain: d
time: { from: t, unit: s }
descriptors:
  - - { key: user, from: user }
good: code == 200
";

fn line(second: u64, user: &str, code: u16) -> String {
    format!("{{\"t\":{},\"user\":\"{user}\",\"code\":{code}}}\n", T0_S + second)
}

#[test]
fn keys_and_minutes_have_their_figures() {
    // Over two per minute: the requests of a at 20, 30 and 75 seconds, and those of b at 13 and 14.
    let requests = [
        (10, "a", 200),
        (10, "a", 200),
        (11, "b", 200),
        (12, "b", 200),
        (13, "b", 200),
        (14, "b", 200),
        (20, "a", 500),
        (30, "a", 200),
        (61, "a", 200),
        (62, "a", 200),
        (75, "a", 500),
    ];
    let log: String = requests.iter().map(|(second, user, code)| line(*second, user, *code)).collect();
    let ended = Simulation::new(RULES)
        .map(MAP)
        .log("a.json", log)
        .with(&["--format", "json", "--show-keys"])
        .succeed();
    let rule = &ended.report["rules"][0];
    assert_eq!((&rule["timeline"]["asked"], &rule["timeline"]["over"]), (&json!([8, 3]), &json!([4, 1])));
    assert_eq!(rule["timeline"]["start_us"], json!(T0_S * 1_000_000));
    let at = |second: u64| json!((T0_S + second) * 1_000_000);
    let [a, b] = [&rule["top_denied"][0], &rule["top_denied"][1]];
    assert_eq!((&a["key"], &a["over"], &a["good_over"]), (&json!("{d|user=a}"), &json!(3), &json!(1)));
    assert_eq!((&a["asked"], &a["units"], &a["own_peak"]), (&json!(7), &json!(7), &json!(4)));
    assert_eq!((&a["first_over_us"], &a["last_over_us"]), (&at(20), &at(75)));
    assert_eq!(a["longest_denial_us"], 41_000_000, "from 20 seconds until the request at 61 fits");
    assert_eq!((&b["over"], &b["longest_denial_us"]), (&json!(2), &json!(1_000_000)), "until its last one");
    assert_eq!(rule["keys_over_good_only"], 1, "all requests of b over the limit were good");
    let peaks = rule["peaks"].as_array().expect("windows");
    let longest: Vec<(u64, u64)> = peaks
        .iter()
        .map(|peak| (peak["window_s"].as_u64().expect("seconds"), peak["max"].as_u64().expect("units")))
        .collect();
    assert_eq!(longest, [(1, 2), (10, 4), (60, 4), (300, 7), (3_600, 7), (86_400, 7)]);
}

#[test]
fn limits_shorter_than_ten_steps_of_the_clock_are_marked() {
    let rules = |unit: &str| RULES.replace("minute", unit);
    for (unit, is_resolved) in [("second", false), ("minute", true)] {
        let log: String = (0..20).map(|second| line(second, "a", 200)).collect();
        let ended =
            Simulation::new(&rules(unit)).map(MAP).log("a.json", log).with(&["--format", "json"]).succeed();
        assert_eq!(ended.method("clock_resolution_us"), 1_000_000);
        assert_eq!(ended.report["rules"][0]["is_resolved"], is_resolved, "{unit}");
        assert_eq!(ended.stdout.contains("too coarse for users"), !is_resolved, "{}", ended.stdout);
    }
}

#[test]
fn the_page_shows_the_path_of_a_rule_beside_a_name_alone() {
    let mut browser = Chromium::start(Colors::Light);
    let mut page = |rules: &str| {
        let simulation = Simulation::new(rules).map(MAP);
        let html = simulation.path("page.html");
        let log: String = (0..5).map(|second| line(second, "a", 200)).collect();
        let simulation = simulation.log("a.json", log).with(&["--report", &html.display().to_string()]);
        simulation.succeed();
        show_page(&mut browser, &html);
        browser.texts(".limit-text").remove(0)
    };
    assert_eq!(page(RULES), "d.user · 2 per 1 min, fixed_window");
    assert_eq!(page(&RULES.replace("name: users, ", "")), "2 per 1 min, fixed_window");
}
