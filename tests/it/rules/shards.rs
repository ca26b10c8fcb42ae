//! `shard_by` of domain and rule: the part of a counter's key within braces.

use engine::{Descriptor, LimitOverride, Period, Unit};
use rules::{AppliedUpgrades, LoadOptions, describe, load, rlconfig};

use super::{REFERENCE, descriptor, keys, load_text, request, rules};

const RULES: &str = "
domain: d
shard_by: domain
descriptors:
  - key: a
    rate_limit: { unit: minute, requests_per_unit: 3 }
    descriptors:
      - { key: b, shard_by: descriptor, rate_limit: { unit: minute, requests_per_unit: 3 } }
      - { key: c, shard_by: first_entry, rate_limit: { unit: minute, requests_per_unit: 3 } }
";

#[test]
fn shard_by_of_a_rule_overrides_shard_by_of_its_domain() {
    let rules = rules(RULES);
    assert_eq!(
        keys(&rules, &request("d", &["a=1", "a=1,b=2", "a=1,c=2"])),
        ["{d}|a=1#fw:60000000", "{d|a=1|b=2}#fw:60000000", "{d|a=1}|c=2#fw:60000000"]
    );
    let limit = LimitOverride { requests_per_unit: 5, period: Period::one(Unit::Second) };
    let mut with_override = request("d", &[]);
    with_override.descriptors.push(Descriptor { limit: Some(limit), ..descriptor("x=1") });
    assert!(keys(&rules, &with_override)[0].starts_with("{d}|x=1#"), "overrides use the domain's shard_by");
}

#[test]
fn explain_and_rlconfig_show_shard_by() {
    let rules = rules(RULES);
    let shown = describe(&rules, &AppliedUpgrades::default(), &request("d", &["a=1,b=2"]), 0)
        .expect("a description")
        .text;
    assert!(shown.contains("shard by          descriptor: "), "{shown}");
    let lines = rlconfig(&rules);
    let names: Vec<_> =
        lines.lines().map(|line| line.rsplit_once("shard_by: ").map(|(_, name)| name)).collect();
    assert_eq!(names, [Some("domain"), Some("descriptor"), None], "{lines}");
}

#[test]
fn unknown_values_are_errors_and_values_without_effect_are_warnings() {
    let problems = load_text("domain: d\nshard_by: tenant\ndescriptors: []\n").expect_err("an unknown value");
    assert!(
        problems.to_string().contains("rules.yaml:2: ") && problems.to_string().contains("first_entry"),
        "{problems}"
    );

    let without_effect = "domain: d\ndescriptors:\n  - { key: a, value: b, shard_by: domain }\n";
    let warnings = load_text(without_effect).expect("it can be loaded").warnings;
    assert!(warnings.all()[0].reason.contains("'shard_by' has no effect here"), "{warnings:?}");
}

#[test]
fn files_of_one_domain_must_have_the_same_shard_by() {
    let directory = tempfile::tempdir().expect("a directory");
    let load_both = |first: &str, second: &str| {
        for (name, shard_by) in [("1.yaml", first), ("2.yaml", second)] {
            let text = format!(
                "domain: d\n{shard_by}\ndescriptors:\n  - {{ key: k{name}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n"
            );
            std::fs::write(directory.path().join(name), text).expect("a file");
        }
        load(&[directory.path().to_path_buf()], LoadOptions { merge_domains: true, ..REFERENCE })
    };
    let loaded = load_both("", "shard_by: domain").unwrap_or_else(|problems| panic!("{problems}"));
    assert!(loaded.rules.rules().iter().all(|rule| rule.shard_by.into_str() == "domain"));
    let problems = load_both("shard_by: descriptor", "shard_by: domain")
        .expect_err("two values for one domain")
        .to_string();
    assert!(
        problems.contains("2.yaml:1: ") && problems.contains("shard_by of domain 'd' is domain"),
        "{problems}"
    );
}
