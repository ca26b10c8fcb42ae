//! The rule files in `config/rules`: they load without a warning and do what their comments say. The schema.

use std::collections::BTreeSet;
use std::fs;

use engine::{Algorithm, Pacing, Refill, RuleSet};
use rules::{AppliedUpgrades, describe, load, schema};

use super::{REFERENCE, labels, request, root};

fn examples() -> RuleSet {
    let loaded =
        load(&[root().join("config/rules")], REFERENCE).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings.all(), []);
    loaded.rules
}

#[test]
fn the_example_rules_show_every_algorithm() {
    let rules = examples();
    let specs = || rules.limits().iter().map(|limit| &limit.spec);
    let used: BTreeSet<_> = specs().map(|spec| spec.algorithm.name()).collect();
    let all: BTreeSet<_> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    assert_eq!(used, all);
    assert!(specs().any(|spec| spec.pacing == Pacing::Queue));
    assert!(specs().any(|spec| spec.refill == Refill::Interval));
    assert!(rules.rules().iter().any(|rule| rule.shadow));
    assert!(rules.rules().iter().any(|rule| rule.limits.len() > 1));
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
        ("nowhere", &["a=b"], 0, &["there are no rules for domain 'nowhere'", "'accounts', 'edge'"]),
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
