//! The keys of a limit, defaults, merged domains, YAML features.

use engine::{
    Algorithm, Charging, Defaults, FailurePolicy, LimitSpec, Metadata, Pacing, Period, Quantity, Unit,
};
use rules::{LoadOptions, load, rlconfig};

use super::{REFERENCE, keys, labels, load_bytes, load_text, request, rules};

fn limit(keys: &str, defaults: Defaults) -> LimitSpec {
    let text = format!(
        "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {{ unit: minute, requests_per_unit: 5{keys} }}\n"
    );
    let options = LoadOptions { defaults, ..REFERENCE };
    let loaded = load_bytes(text.as_bytes(), options).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings.all(), [], "{keys}");
    loaded.rules.limits()[0].spec.clone()
}

#[test]
fn a_limit_without_options_is_as_in_envoyproxy_ratelimit() {
    let plain = LimitSpec {
        charging: Charging::Postpaid,
        on_store_failure: FailurePolicy::Error,
        ..LimitSpec::new(Algorithm::FixedWindow, 5, Period::one(Unit::Minute))
    };
    assert_eq!(limit("", Defaults::ENVOY_RATELIMIT), plain);
    let all_options = limit(
        ", algorithm: leaky_bucket, mode: queue, burst: 20, unit_multiplier: 10, charging: postpaid, \
         on_store_failure: local, name: n",
        Defaults::ENVOY_RATELIMIT,
    );
    assert_eq!(
        all_options,
        LimitSpec {
            period: Period::new(Unit::Minute, 10).expect("ten minutes"),
            algorithm: Algorithm::LeakyBucket,
            pacing: Pacing::Queue,
            burst: Some(20),
            on_store_failure: FailurePolicy::Local,
            name: Some("n".to_owned()),
            ..plain
        }
    );
}

#[test]
fn charging_depends_on_the_rule_and_the_defaults() {
    let prepaid = Defaults { charging: Some(Charging::Prepaid), ..Defaults::ENVOY_RATELIMIT };
    let gcra = Defaults {
        algorithm: Algorithm::Gcra,
        on_store_failure: FailurePolicy::Allow,
        ..Defaults::ENVOY_RATELIMIT
    };
    let table = [
        // keys, defaults, algorithm, charging, on_store_failure
        ("", Defaults::ENVOY_RATELIMIT, Algorithm::FixedWindow, Charging::Postpaid, FailurePolicy::Error),
        (
            ", algorithm: fixed_window",
            Defaults::ENVOY_RATELIMIT,
            Algorithm::FixedWindow,
            Charging::Prepaid,
            FailurePolicy::Error,
        ),
        ("", prepaid, Algorithm::FixedWindow, Charging::Prepaid, FailurePolicy::Error),
        (", charging: postpaid", prepaid, Algorithm::FixedWindow, Charging::Postpaid, FailurePolicy::Error),
        ("", gcra, Algorithm::Gcra, Charging::Postpaid, FailurePolicy::Allow),
        (", burst: 2", gcra, Algorithm::Gcra, Charging::Postpaid, FailurePolicy::Allow),
        (
            ", algorithm: sliding_log, on_store_failure: deny",
            gcra,
            Algorithm::SlidingLog,
            Charging::Prepaid,
            FailurePolicy::Deny,
        ),
    ];
    for (keys, defaults, algorithm, charging, policy) in table {
        let spec = limit(keys, defaults);
        assert_eq!(
            (spec.algorithm, spec.charging, spec.on_store_failure),
            (algorithm, charging, policy),
            "{keys}"
        );
    }
}

#[test]
fn units_ignore_case_and_values_are_kept_as_written() {
    let rules = rules(
        "
domain: 7
descriptors:
  - key: port
    value: 0070
    rate_limit: { unit: MINUTE, requests_per_unit: 0x10 }
  - key: flag
    value: yes
    rate_limit: { unit: Hour, requests_per_unit: 1_000 }
  - key: 'null'
    value: ~
    shadow_mode: on
    rate_limit: { unit: week, requests_per_unit: 010 }
",
    );
    let table = [
        ("port=0070", "{7|port=0070}#fw:60000000"),
        ("flag=yes", "{7|flag=yes}#fw:3600000000"),
        ("null=x", "{7|null=x}#fw:604800000000"),
    ];
    for (descriptor, key) in table {
        assert_eq!(keys(&rules, &request("7", &[descriptor])), [key], "{descriptor}");
    }
    assert!(keys(&rules, &request("7", &["port=70"])).is_empty());
    assert!(rules.rules()[2].shadow);
}

#[test]
fn anchors_and_merge_keys_work_as_in_yaml_v2() {
    let loaded = load_text(
        "
domain: d
descriptors:
  - key: a
    rate_limit: &minutely
      unit: minute
      requests_per_unit: 5
  - key: b
    rate_limit: *minutely
  - key: c
    rate_limit:
      <<: *minutely
      requests_per_unit: 6
  - key: d
    rate_limit:
      <<: [{ requests_per_unit: 7 }, *minutely]
",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings.all(), []);
    let numbers: Vec<_> = loaded.rules.limits().iter().map(|limit| limit.spec.requests_per_unit).collect();
    assert_eq!(numbers, [5, 5, 6, 7]);
}

#[test]
fn repeated_and_merged_keys_are_merged_as_in_yaml_v2() {
    let loaded = load_text(
        "
domain: d
descriptors:
  - &base
    key: a
    rate_limit: { unit: minute, requests_per_unit: 5, name: base, replaces: [{ name: x }, { name: y }] }
    metadata: { team: core, owner: { name: o } }
  - <<: *base
    key: b
    rate_limit: { requests_per_unit: 6, name: b, replaces: [{ name: z }] }
    metadata: { owner: { phone: 1 } }
  - key: c
    rate_limit: { unit: hour, name: c }
    <<: { rate_limit: { unit: minute, requests_per_unit: 9 } }
  - key: e
    rate_limit: { unit: day, requests_per_unit: 7 }
    rate_limit: { unit: hour, name: e }
  - <<: *base
    key: f
    rate_limit: { name: ~, replaces: }
  - <<: [{ rate_limit: { unit: week } }, *base]
    key: g
    rate_limit: { name: g }
  - <<: *base
    key: h
    rate_limit: ~
    rate_limit: { unit: year, requests_per_unit: 8 }
  - <<: *base
    key: i
    value: exempt
    rate_limit:
",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let found: Vec<_> = loaded
        .rules
        .limits()
        .iter()
        .map(|limit| {
            let spec = &limit.spec;
            let replaces = spec.replaces.join("+");
            (spec.requests_per_unit, spec.period.unit(), spec.name.as_deref().unwrap_or(""), replaces)
        })
        .collect();
    let expected = [
        (5, Unit::Minute, "base", "x+y"),
        (6, Unit::Minute, "b", "z"), // own keys override merged keys; lists are replaced, not joined
        (9, Unit::Minute, "c", ""),  // a merge key below an own key overrides it
        (7, Unit::Hour, "e", ""),
        (5, Unit::Minute, "", ""),   // null removes a value
        (5, Unit::Week, "g", "x+y"), // the first of several merged maps overrides the other maps
        (8, Unit::Year, "", ""),     // null removes the merged value before the next value
    ];
    let expected = expected.map(|(limit, unit, name, replaces)| (limit, unit, name, replaces.to_owned()));
    assert_eq!(found, expected);
    assert!(labels(&loaded.rules, &request("d", &["i=exempt"])).is_empty());
    let text = |text: &str| Metadata::Text(text.to_owned());
    let owner = Metadata::Map([("phone".to_owned(), Metadata::Number(1.0))].into());
    let metadata = Metadata::Map([("team".to_owned(), text("core")), ("owner".to_owned(), owner)].into());
    assert_eq!(loaded.rules.rules()[1].metadata, Some(metadata));
}

#[test]
fn metadata_of_any_shape_is_kept() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: minute, requests_per_unit: 5 }
    metadata: { team: core, weight: 1.5, tags: [x, 2, true, ~], owner: { unit: day } }
",
    );
    let Some(Metadata::Map(map)) = rules.rules()[0].metadata.clone() else {
        panic!("no metadata");
    };
    let text = |text: &str| Metadata::Text(text.to_owned());
    assert_eq!(map["team"], text("core"));
    assert_eq!(map["weight"], Metadata::Number(1.5));
    assert_eq!(
        map["tags"],
        Metadata::List(vec![text("x"), Metadata::Number(2.0), Metadata::Bool(true), Metadata::Null])
    );
    assert_eq!(map["owner"], Metadata::Map([("unit".to_owned(), text("day"))].into()));
}

#[test]
fn domains_are_merged_on_request_in_the_order_of_the_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, value: &str| {
        let shared = if value.contains('*') { "    share_threshold: true\n" } else { "" };
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    value: '{value}'\n{shared}    rate_limit: {{ name: '{name}', unit: minute, requests_per_unit: 1 }}\n"
        );
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    };
    write("10-first.yaml", "a*");
    write("20/second.yml", "ab*");
    write("30-third.yaml", "b");
    let paths = [directory.path().to_path_buf()];
    let merging = LoadOptions { merge_domains: true, ..REFERENCE };

    let loaded = load(&paths, merging.clone()).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((loaded.files, loaded.specs.len()), (3, 1));
    assert_eq!(labels(&loaded.rules, &request("d", &["k=abc"])), ["10-first.yaml"]);
    assert_eq!(loaded.warnings.warnings(), 1, "the second wildcard never matches: {:?}", loaded.warnings);
    assert!(loaded.warnings.all()[0].location.file.ends_with("20/second.yml"));

    write("40-fourth.yaml", "b");
    let problems = load(&paths, merging).expect_err("k_b twice");
    let first = problems.all().iter().find(|problem| problem.is_error()).expect("an error");
    assert!(first.reason.starts_with("duplicate descriptor composite key 'd.k_b', first on "));
    assert!(first.location.file.ends_with("40-fourth.yaml"));

    let unmerged = load(&paths, REFERENCE).expect_err("one domain, several files").to_string();
    assert_eq!(unmerged.matches("duplicate domain 'd' in config file").count(), 3, "{unmerged}");
}

#[test]
fn each_file_of_a_config_map_volume_is_read_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let version = path.join("..2026_01_01");
    std::fs::create_dir(&version).expect("a directory");
    std::fs::write(version.join("rules.yaml"), "domain: d\ndescriptors: []\n").expect("a file");
    std::os::unix::fs::symlink("..2026_01_01", path.join("..data")).expect("a link");
    std::os::unix::fs::symlink("..data/rules.yaml", path.join("rules.yaml")).expect("a link");
    std::fs::write(path.join(".rules.yaml.swp"), "not rules").expect("a file");
    let loaded = load(&[path.to_path_buf()], REFERENCE).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((loaded.files, loaded.warnings.warnings()), (1, 0));
    // A cycle of links is followed once, and a file with two names is read once.
    std::os::unix::fs::symlink(".", path.join("cycle")).expect("a link");
    std::os::unix::fs::symlink("rules.yaml", path.join("twice.yaml")).expect("a link");
    let loaded = load(&[path.to_path_buf()], REFERENCE).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((loaded.files, loaded.warnings.warnings()), (1, 2));
}

#[test]
fn unlimited_limits_have_no_charge() {
    let rules =
        rules("domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unlimited: true, name: free }\n");
    assert_eq!(rules.limits()[0].quantity, Quantity::Unlimited);
    assert!(keys(&rules, &request("d", &["a=1"])).is_empty());
}

#[test]
fn rlconfig_has_the_lines_of_envoyproxy_ratelimit() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: a
    value: b
    rate_limit: { unit: minute, requests_per_unit: 3 }
  - key: a
    shadow_mode: true
    descriptors:
      - key: c
        quota_mode: true
        rate_limits:
          - { unit: SECOND, requests_per_unit: 10, algorithm: gcra, burst: 5 }
          - { unlimited: true }
  - key: e
    rate_limit: { unit: day, unit_multiplier: 2, requests_per_unit: 4, algorithm: leaky_bucket, mode: queue, on_store_failure: deny }
",
    );
    assert_eq!(
        rlconfig(&rules),
        "d.a_b: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: false\n\
         d.a.c: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: true, algorithm: gcra, burst: 5, charging: prepaid\n\
         d.a.c: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: true\n\
         d.e: unit=DAY requests_per_unit=4, shadow_mode: false, quota_mode: false, unit_multiplier: 2, algorithm: leaky_bucket, mode: queue, charging: prepaid, on_store_failure: deny\n"
    );
}
