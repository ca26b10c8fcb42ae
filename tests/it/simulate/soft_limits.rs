//! Soft limits and limits that reserve, in a simulation of an access log.

use super::Simulation;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: soft, unit: minute, requests_per_unit: 200, on_over: announce }
      - { name: hard, unit: minute, requests_per_unit: 1000, algorithm: fixed_window, reserve: 100 }
";

const MAP: &str = "
domain: d
time: { from: t, unit: s }
cost: { from: tokens, unit: 1 }
descriptors:
  - - { key: user, from: user }
";

#[test]
fn an_announced_limit_denies_nothing_and_a_reserving_one_takes_whole_costs() {
    // 1,200 tokens in a minute: the limit of 1,000 takes each cost at once, although the log has no checks.
    let log: String =
        (0..4).map(|n| format!("{{\"t\":{},\"user\":\"a\",\"tokens\":300}}\n", 1_776_284_220 + n)).collect();
    let ended = Simulation::new(RULES).map(MAP).log("a.json", log).succeed();
    assert_eq!((ended.of_rule("soft", "over"), ended.of_rule("hard", "over")), (4, 1));
    assert_eq!(ended.report["totals"]["denied"], 1, "{}", ended.report);
    assert_eq!(ended.report["totals"]["shadow_denied"], 3, "{}", ended.report);
    assert_eq!(ended.of_rule("hard", "reserve"), 100);
    let rules = ended.report["rules"].as_array().expect("a list");
    let announces: Vec<_> = rules.iter().map(|rule| (&rule["rule"], &rule["announces"])).collect();
    assert_eq!(announces, [(&"soft".into(), &true.into()), (&"hard".into(), &false.into())]);
    for text in ["200/1m fixed_window announces", "1000/1m fixed_window reserve 100"] {
        assert!(
            ended.stdout.contains(text) || ended.stderr.contains(text),
            "{text}: {}{}",
            ended.stdout,
            ended.stderr
        );
    }
}
