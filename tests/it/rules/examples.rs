//! The rule files in `config/rules`: they load without a warning and do what their comments say. The schema.

use std::collections::BTreeSet;
use std::fs;

use engine::{Algorithm, Pacing, Refill, RuleSet};
use rules::{AppliedUpgrades, describe, load, schema};

use super::{REFERENCE, labels, request, root, rules};

fn examples() -> RuleSet {
    let loaded =
        load(&[root().join("config/rules")], REFERENCE).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings.all(), []);
    loaded.rules
}

#[test]
fn the_example_rules_show_every_algorithm_that_is_simulated() {
    let rules = examples();
    let specs = || rules.limits().iter().map(|limit| &limit.spec);
    let used: BTreeSet<_> = specs().map(|spec| spec.algorithm.into_str()).collect();
    // A simulation leaves out concurrency, and says so. The example rules are what users simulate first.
    let simulated = Algorithm::ALL.iter().filter(|algorithm| **algorithm != Algorithm::Concurrency);
    let all: BTreeSet<_> = simulated.map(|algorithm| algorithm.into_str()).collect();
    assert_eq!(used, all);
    assert!(specs().any(|spec| spec.pacing == Pacing::Queue));
    assert!(specs().any(|spec| spec.refill == Refill::Interval));
    assert!(rules.rules().iter().any(|rule| rule.shadow));
    assert!(rules.rules().iter().any(|rule| rule.limits.len() > 1));
}

#[test]
fn every_example_names_its_algorithm_and_what_happens_without_the_store() {
    for entry in fs::read_dir(root().join("config/rules")).expect("the example rules") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("text");
        let keys = |key: &str| text.lines().filter(|line| line.trim_start().starts_with(key)).count();
        let limits = keys("requests_per_unit:");
        assert_eq!((keys("algorithm:"), keys("on_store_failure:")), (limits, limits), "{}", path.display());
    }
}

#[test]
fn the_example_rules_meet_the_requests_in_their_comments() {
    let rules = examples();
    let table: [(&str, &[&str], &[&str]); 8] = [
        ("edge", &["generic_key=slow"], &["edge.generic_key_slow"]),
        ("edge", &["remote_address=203.0.113.7"], &["per-client"]),
        ("edge", &["remote_address=192.0.2.10"], &[]),
        ("edge", &["tenant=acme,path=/search"], &["edge.tenant.path_/search"]),
        ("edge", &["tenant=acme,path=/healthz"], &[]),
        ("accounts", &["api_user=u"], &["api-per-second", "api-per-hour"]),
        ("accounts", &["api_user=u", "partner=p"], &["partner-per-second"]),
        ("workers", &["third_party=maps"], &["workers.third_party_maps"]),
    ];
    for (domain, asked, expected) in table {
        assert_eq!(labels(&rules, &request(domain, asked)), expected, "{asked:?}");
    }
}

#[test]
fn every_example_names_the_schema_and_the_schema_is_up_to_date() {
    for entry in fs::read_dir(root().join("config/rules")).expect("the example rules") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("text");
        let first = text.lines().next();
        let named = Some("# yaml-language-server: $schema=../rules.schema.json");
        assert_eq!(first, named, "{}", path.display());
    }
    let text = fs::read_to_string(root().join("config/rules.schema.json")).expect("the schema");
    let written: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(written, schema(), "run: ratelimitd validate --schema > config/rules.schema.json");
}

#[test]
fn explanations_say_why() {
    let rules = examples();
    let table: [(&str, &[&str], usize, &[&str]); 10] = [
        // domain, descriptors, how many match, what the text says
        ("nowhere", &["a=b"], 0, &["no rules for domain 'nowhere'", "'accounts', 'edge'"]),
        ("edge", &["generic_key=x"], 0, &["no node for entry 1 (generic_key=x)", "'generic_key_slow'"]),
        ("edge", &["tenant=a,path=/x"], 0, &["no node for entry 2 (path=/x)", "'path_/search'"]),
        ("edge", &["tenant=a"], 0, &["shorter than the rules", "'path_/healthz', 'path_/search'"]),
        ("edge", &["generic_key=slow,x=y"], 0, &["deeper than the rules", "entry 2 (x=y)"]),
        ("edge", &["tenant=a,path=/healthz"], 0, &["exempt"]),
        ("edge", &["remote_address=192.0.2.10"], 1, &["never counted, always admitted"]),
        (
            "edge",
            &["path=/files/a"],
            1,
            &[
                "wildcard, node 'path_/files/*'",
                "share one counter",
                "{edge|path=/files/*%*}#gc:1000000 (in Redis after store.redis.key_prefix)",
            ],
        ),
        (
            "edge",
            &["path=/files/*"],
            1,
            &[
                "exact value, node 'path_/files/*'; all values of this wildcard share",
                "{edge|path=/files/*%*}#gc",
            ],
        ),
        (
            "accounts",
            &["api_user=u", "partner=p"],
            1,
            &["left out: replaced by limit 'partner-per-second'", "up to 200 at once, then one every 5ms"],
        ),
    ];
    for (domain, asked, matched, says) in table {
        let description = describe(&rules, &AppliedUpgrades::default(), &request(domain, asked), 0)
            .expect("an explanation");
        assert_eq!(description.matched, matched, "{asked:?}");
        for piece in says {
            assert!(description.text.contains(piece), "{piece:?} in {}", description.text);
        }
    }
}

#[test]
fn a_limit_of_zero_is_explained_without_a_counter() {
    let rules = rules(
        "
domain: d
descriptors:
  - { key: none, rate_limit: { unit: day, requests_per_unit: 0, algorithm: gcra, near: 0.5 } }
  - { key: shown, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: told, rate_limit: { unit: day, requests_per_unit: 0, on_over: announce } }
  - { key: slow, rate_limit: { unit: day, requests_per_unit: 7, algorithm: gcra } }
  - { key: weekly, rate_limit: { unit: week, requests_per_unit: 5, algorithm: gcra } }
",
    );
    let blocks = "nothing, because requests_per_unit is 0: it blocks all requests, whatever they cost, without a counter";
    let over = "nothing, because requests_per_unit is 0: all requests are over the limit, whatever they cost, without a \
                counter";
    let table = [
        ("none=1", vec![("admits", blocks)]),
        ("shown=1", vec![("admits", over)]),
        (
            "told=1",
            vec![
                ("admits", over),
                ("on over", "announce: the hit goes ahead, and the answer says that the limit is over"),
            ],
        ),
    ];
    let text = |asked| {
        let described = describe(&rules, &AppliedUpgrades::default(), &request("d", &[asked]), 0);
        described.expect("an explanation").text
    };
    for (asked, expected) in table {
        let text = text(asked);
        // The limit has no name of its own.
        let (_, limit) = text.split_once("\n  limit\n").expect("a limit");
        let lines = limit.lines().map(|line| line.split_at(22)).map(|(name, value)| (name.trim(), value));
        assert_eq!(lines.collect::<Vec<_>>(), expected, "{text}");
    }
    assert!(text("slow=1").contains("up to 7 at once, then one every about 3h 25m 42s\n"));
    assert!(text("weekly=1").contains("up to 5 at once, then one every 1d 9h 36m\n"));
}
