//! Which limits and counters a request matches. No store decides anything here.

use engine::{LimitOverride, Period, Plan, RuleSet, Unit};

use super::{descriptor, keys, labels, request, rules};

/// Rules from the examples and tests of envoyproxy/ratelimit.
const REFERENCE_RULES: &str = "
domain: test-domain
descriptors:
  - key: wild
    value: foo*
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: key1
    value: value1
    descriptors:
      - key: subkey1
        rate_limit: { unit: second, requests_per_unit: 5 }
      - key: subkey1
        value: subvalue1
        rate_limit: { unit: second, requests_per_unit: 10 }
  - key: key2
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: key2
    value: value2
    rate_limit: { unit: minute, requests_per_unit: 30 }
  - key: key2
    value: value3
  - key: user
    value_to_metric: true
    descriptors:
      - key: action
        value_to_metric: true
        descriptors:
          - key: resource
            rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: route
    value: api/*
    share_threshold: true
    descriptors:
      - key: method
        value_to_metric: true
        rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: nested
    descriptors:
      - key: key_1
        value: value_1
        detailed_metric: true
        rate_limit: { unit: minute, requests_per_unit: 3 }
";

fn check(rules: &RuleSet, domain: &str, table: &[(&str, &str)]) {
    for (descriptor, label) in table {
        let found = labels(rules, &request(domain, &[descriptor]));
        let expected: &[&str] = if label.is_empty() { &[] } else { &[label] };
        assert_eq!(found, expected, "{descriptor}");
    }
}

#[test]
fn rules_match_and_are_labelled_as_in_envoyproxy_ratelimit() {
    let rules = rules(REFERENCE_RULES);
    check(
        &rules,
        "test-domain",
        &[
            ("wild=foo1", "test-domain.wild_foo*"),
            ("wild=foo", "test-domain.wild_foo*"), // a star also matches the empty text
            ("wild=bar", ""),
            ("key1=value1,subkey1=something", "test-domain.key1_value1.subkey1"),
            ("key1=value1,subkey1=subvalue1", "test-domain.key1_value1.subkey1_subvalue1"),
            ("key1=value1", ""),                     // shorter than the rules
            ("key1=value1,subkey1=x,another=y", ""), // deeper than the rules
            ("key1=unknown,subkey1=subvalue1", ""),  // no node at the first level
            ("subkey1=subvalue1,key1=value1", ""),   // the order of entries matters
            ("key2=value1", "test-domain.key2"),
            ("key2=", "test-domain.key2"),
            ("key2=value2", "test-domain.key2_value2"),
            ("key2=value3", ""), // an exact value without a limit is exempt
            ("user=alice,action=read,resource=file", "test-domain.user.action.resource"),
            ("route=api/v1,method=GET", "test-domain.route_api/*.method"),
            ("nested=x,key_1=value_1", "test-domain.nested.key_1_value_1"),
            ("", ""), // no entries
        ],
    );
    assert!(labels(&rules, &request("other-domain", &["key2=value2"])).is_empty());
}

#[test]
fn wildcards_are_tried_in_file_order_after_exact_values_and_before_the_key_alone() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: path
    rate_limit: { name: key-alone, unit: minute, requests_per_unit: 1 }
  - key: path
    value: /a/*
    rate_limit: { name: first, unit: minute, requests_per_unit: 1 }
  - key: path
    value: '*/b'
    rate_limit: { name: second, unit: minute, requests_per_unit: 1 }
  - key: path
    value: /a/exact
    rate_limit: { name: exact, unit: minute, requests_per_unit: 1 }
  - key: path
    value: /c/*/d/*.png
    rate_limit: { name: pieces, unit: minute, requests_per_unit: 1 }
",
    );
    check(
        &rules,
        "d",
        &[
            ("path=/a/exact", "exact"),
            ("path=/a/b", "first"), // both wildcards match
            ("path=/x/b", "second"),
            ("path=/a/*", "first"), // a literal star is an exact match of the wildcard's node
            ("path=/c/x/d/y.png", "pieces"),
            ("path=/c/d/y.png", "key-alone"), // the pieces may not overlap
            ("path=other", "key-alone"),
        ],
    );
}

#[test]
fn matching_does_not_return_from_a_matched_node_to_its_siblings() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: a
    value: exact
    descriptors:
      - key: x
        rate_limit: { name: below-exact, unit: minute, requests_per_unit: 1 }
  - key: a
    value: ex*
    descriptors:
      - key: y
        rate_limit: { name: below-wildcard, unit: minute, requests_per_unit: 1 }
  - key: a
    descriptors:
      - key: y
        rate_limit: { name: below-key, unit: minute, requests_per_unit: 1 }
      - key: z
        rate_limit: { name: also-below-key, unit: minute, requests_per_unit: 1 }
",
    );
    check(
        &rules,
        "d",
        &[
            ("a=exact,x=1", "below-exact"),
            ("a=exact,y=1", ""), // the exact node matched, so wildcard and key are not tried
            ("a=exotic,y=1", "below-wildcard"),
            ("a=exotic,z=1", ""),
            ("a=other,z=1", "also-below-key"),
        ],
    );
}

#[test]
fn key_and_value_are_joined_without_escapes_as_in_envoyproxy_ratelimit() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: a
    value: b_c
    rate_limit: { unit: minute, requests_per_unit: 1 }
",
    );
    check(&rules, "d", &[("a=b_c", "d.a_b_c"), ("a_b=c", "d.a_b_c")]);
    // Rules join key and value, counter keys do not: each request has its own counter.
    assert_eq!(keys(&rules, &request("d", &["a=b_c"])), ["{d|a=b_c}#fw:60000000"]);
    assert_eq!(keys(&rules, &request("d", &["a_b=c"])), ["{d|a_b=c}#fw:60000000"]);
}

#[test]
fn share_threshold_gives_all_values_of_a_wildcard_one_counter() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: files
    value: files/*
    share_threshold: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: separate
    value: files/*
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: route
    value: api/*
    share_threshold: true
    descriptors:
      - key: method
        rate_limit: { unit: minute, requests_per_unit: 1 }
",
    );
    let table = [
        ("files=files/a", "{d|files=files/*%*}#fw:60000000"),
        ("files=files/b", "{d|files=files/*%*}#fw:60000000"),
        ("separate=files/a", "{d|separate=files/a}#fw:60000000"),
        // share_threshold on an ancestor of the limit.
        ("route=api/a,method=GET", "{d|route=api/*%*}|method=GET#fw:60000000"),
        ("route=api/b,method=GET", "{d|route=api/*%*}|method=GET#fw:60000000"),
        ("route=api/b,method=PUT", "{d|route=api/*%*}|method=PUT#fw:60000000"),
    ];
    for (descriptor, key) in table {
        assert_eq!(keys(&rules, &request("d", &[descriptor])), [key], "{descriptor}");
    }
}

#[test]
fn counters_of_share_threshold_differ_between_rules() {
    let limit = "share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 1 }";
    let rules = rules(&format!(
        "domain: d\ndescriptors:\n  - {{ key: k_a, value: '*', {limit} }}\n  - {{ key: k, value: '*', {limit} }}\n"
    ));
    let shared = |descriptor| keys(&rules, &request("d", &[descriptor]));
    // The pattern of k_a, with the key of the request.
    assert_eq!(shared("k=a_b"), ["{d|k=k_a_*%**}#fw:60000000"]);
    assert_eq!(shared("k_a=b"), ["{d|k_a=*%*}#fw:60000000"]);
    assert_eq!(shared("k=zzz"), ["{d|k=*%*}#fw:60000000"]);
}

const REPLACING: &str = "
domain: d
descriptors:
  - key: everyone
    rate_limit: { name: base, unit: minute, requests_per_unit: 10 }
  - key: partner
    rate_limit: { name: partner, unit: minute, requests_per_unit: 100, replaces: [{ name: base }] }
  - key: owner
    rate_limit: { unlimited: true, replaces: [{ name: partner }] }
";

#[test]
fn a_replaced_limit_does_not_apply_in_any_order_of_descriptors() {
    let rules = rules(REPLACING);
    let table: [(&[&str], &[&str]); 4] = [
        (&["everyone=x"], &["base"]),
        (&["everyone=x", "partner=p"], &["partner"]),
        (&["partner=p", "everyone=x"], &["partner"]),
        // A replaced limit still replaces other limits, and so does an unlimited limit.
        (&["everyone=x", "partner=p", "owner=o"], &[]),
    ];
    for (descriptors, expected) in table {
        assert_eq!(labels(&rules, &request("d", descriptors)), expected, "{descriptors:?}");
    }
}

#[test]
fn a_limit_of_the_request_replaces_the_rule() {
    let rules = rules(REPLACING);
    let mut request = request("d", &["everyone=x", "no=node"]);
    for descriptor in &mut request.descriptors {
        descriptor.limit = Some(LimitOverride { requests_per_unit: 7, period: Period::one(Unit::Hour) });
    }
    assert_eq!(labels(&rules, &request), ["override", "override"]);
    assert_eq!(keys(&rules, &request), ["{d|everyone=x}#o:fw:3600000000", "{d|no=node}#o:fw:3600000000"]);
    // In a domain without rules the override is ignored.
    request.domain = "unknown".to_owned();
    assert!(keys(&rules, &request).is_empty());
}

#[test]
fn each_of_several_limits_on_a_descriptor_has_its_own_counter() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: a
    rate_limits:
      - { unit: second, requests_per_unit: 10 }
      - { unit: hour, requests_per_unit: 1000 }
      - { unit: second, requests_per_unit: 10, algorithm: gcra, burst: 3 }
",
    );
    let request = request("d", &["a=1"]);
    assert_eq!(keys(&rules, &request), ["{d|a=1}#fw:1000000", "{d|a=1}#fw:3600000000", "{d|a=1}#gc:1000000"]);
    assert_eq!(rules.rules()[0].limits.len(), 3);
    assert_eq!(descriptor("a=1").entries, request.descriptors[0].entries);
}

#[test]
fn limits_of_one_rule_with_the_same_kind_and_period_keep_their_numbers_in_the_key() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: a
    rate_limits:
      - { unit: minute, requests_per_unit: 10, algorithm: gcra, burst: 3 }
      - { unit: minute, requests_per_unit: 10, algorithm: gcra, burst: 8 }
      - { unit: minute, requests_per_unit: 10 }
      - { unit: minute, unit_multiplier: 2, requests_per_unit: 10 }
",
    );
    let ends = ["gc:60000000/10/3", "gc:60000000/10/8", "fw:60000000", "fw:120000000"];
    assert_eq!(keys(&rules, &request("d", &["a=1"])), ends.map(|end| format!("{{d|a=1}}#{end}")));
}

/// Costs are added only if the limit is the same: here the first and the last, and the two in the middle.
#[test]
fn different_limits_of_one_request_on_one_counter_have_a_counter_each() {
    let rules = rules(REPLACING);
    let mut request = request("d", &["a=1", "a=1", "a=1", "a=1"]);
    for (descriptor, requests_per_unit) in request.descriptors.iter_mut().zip([7, 9, 9, 7]) {
        descriptor.limit = Some(LimitOverride { requests_per_unit, period: Period::one(Unit::Hour) });
    }
    let plan = Plan::new(&rules, &request, 0).expect("a plan");
    let charges =
        plan.charges.iter().map(|(key, charge)| (key, charge.kernel.max_cost(), charge.cost.taken()));
    let one = ("{d|a=1}#o:fw:3600000000", 7, 1);
    let other = ("{d|a=1}#o:fw:3600000000/9", 9, 1);
    assert_eq!(charges.collect::<Vec<_>>(), [one, other, other, one]);
}
