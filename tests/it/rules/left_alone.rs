//! What a change of one limit leaves alone, on any store that can be told the time: the units that are used already
//! when a limit is 0 for a while, the other limits of the rule, and what the charge of a `reserve` did not take.

use std::sync::Arc;

use ::simulate::replay::{MemoryReplay, ReplayStore};
use engine::{
    Decision, Descriptor, Effect, ExceptionRow, Exceptions, ExceptionsBuilder, Glob, LiveRows, RowSource,
    RowTerms, RowValue, RuleSet,
};

use super::rules;
use super::soft_limits::decide;
use crate::settle::{hits, settle};

/// A minute boundary.
const T0: u64 = 1_700_000_040_000_000;

/// The algorithm of each kernel, and the keys that it needs beside `unit` and the number.
const KERNELS: [(&str, &str); 6] = [
    ("fixed", "algorithm: fixed_window"),
    ("calendar", "algorithm: fixed_window, calendar: Europe/Berlin"),
    ("sliding", "algorithm: sliding_window"),
    ("log", "algorithm: sliding_log"),
    ("gcra", "algorithm: gcra"),
    ("bucket", "algorithm: token_bucket, refill: interval"),
];

/// A rule for each kernel, whose key is the name of the kernel.
fn rules_of(limit: impl Fn(&str) -> String) -> RuleSet {
    let rule = |(key, keys): &(&str, &str)| format!("  - {{ key: {key}, {} }}\n", limit(keys));
    rules(&format!("domain: d\ndescriptors:\n{}", KERNELS.iter().map(rule).collect::<String>()))
}

/// The rules with a row for each of these keys and the value `x`.
fn with_rows(rules: &RuleSet, limit_name: &str, effect: &Effect) -> RuleSet {
    let mut builder = ExceptionsBuilder::new(&Exceptions::default());
    for key in KERNELS.iter().map(|(key, _)| *key).chain(["pair"]) {
        builder.add_row(ExceptionRow {
            source: RowSource::File { file: "a.yaml".into(), line: 1 },
            value: RowValue::Exact("x".into()),
            from_us: None,
            until_us: None,
            terms: Arc::new(RowTerms {
                key: key.into(),
                limit_name: Glob::new(limit_name),
                effect: effect.clone(),
                ..RowTerms::default()
            }),
        });
    }
    rules.with_exceptions(Arc::new(builder.build(&Exceptions::default(), |_| {})), &LiveRows::default())
}

fn tier(name: &str) -> Effect {
    Effect { tier: Some(name.into()), ..Effect::default() }
}

fn number(limit: u64) -> Effect {
    Effect { limit: Some(limit), ..Effect::default() }
}

fn refund(entries: &str, units: u64) -> Descriptor {
    Descriptor { is_refund: true, ..hits(entries, units) }
}

/// The units that remain, by limit in the order of the rule.
fn remaining(decision: &Decision) -> Vec<u64> {
    decision.limit_results().map(|result| result.outcome.report.remaining).collect()
}

fn left(rules: &RuleSet, store: &mut impl ReplayStore, entries: &str) -> u64 {
    remaining(&decide(rules, store, T0, &[refund(entries, 0)]))[0]
}

/// While a limit is 0, its counter is as it was: nothing that a caller sends changes it.
pub fn a_limit_of_0_keeps_the_counter(store: &mut impl ReplayStore) {
    for (charging, is_settled) in
        [("", false), ("charging: postpaid, ", false), ("settle: true, ", true), ("reserve: 3, ", false)]
    {
        let limit = |number: u64, charging: &str| {
            let keys =
                format!("unit: month, requests_per_unit: {number}, {charging}tiers: {{ suspended: 0 }}");
            rules_of(|kernel| format!("rate_limit: {{ {keys}, {kernel} }}"))
        };
        let ten = limit(10, charging);
        let block = Effect { block: true, ..Effect::default() };
        let zeros = [
            // A limit of 0 cannot reserve anything.
            ("rule", limit(0, charging.trim_start_matches("reserve: 3, "))),
            ("row", with_rows(&ten, "*", &number(0))),
            ("tier", with_rows(&ten, "*", &tier("suspended"))),
            ("block", with_rows(&ten, "*", &block)),
        ];
        for ((zero_by, zero), (kernel, _)) in
            zeros.iter().flat_map(|zero| KERNELS.iter().map(move |kernel| (zero, kernel)))
        {
            let entries = format!("{kernel}=x");
            decide(&ten, store, T0, &[refund(&entries, 1_000)]);
            let whole = |units| Descriptor { is_whole_cost: true, ..hits(&entries, units) };
            let receipt = decide(&ten, store, T0, &[whole(7)]).receipt(|| 1);
            let receipt = receipt.map_or_else(String::new, |receipt| receipt.to_string());
            for asked in [whole(1), hits(&entries, 1), hits(&entries, 0), refund(&entries, 2)] {
                decide(zero, store, T0, std::slice::from_ref(&asked));
                assert_eq!(left(&ten, store, &entries), 3, "{charging}{kernel}, 0 by a {zero_by}: {asked:?}");
            }
            decide(zero, store, T0, &[settle(&entries, &receipt, 2)]);
            // A row that blocks leaves settles alone. A limit of 0 has no counter on which one could be booked.
            let expected = if is_settled && *zero_by == "block" { 8 } else { 3 };
            assert_eq!(
                left(&ten, store, &entries),
                expected,
                "{charging}{kernel}, 0 by a {zero_by}: a settle"
            );
        }
    }
}

/// A tier or a row of one limit changes no number of another limit of the rule.
pub fn another_limit_of_the_rule_counts_on(store: &mut impl ReplayStore) {
    let interval = "algorithm: token_bucket, refill: interval";
    let tables = [
        ("hour", format!("requests_per_unit: 10, {interval}"), format!("requests_per_unit: 20, {interval}")),
        (
            "day",
            "requests_per_unit: 0, algorithm: gcra".into(),
            "requests_per_unit: 20, algorithm: gcra".into(),
        ),
        ("week", "requests_per_unit: 10".into(), "requests_per_unit: 20".into()),
    ];
    for (unit, small, large) in tables {
        let rules = rules(&format!(
            "domain: d\ndescriptors:\n  - key: pair\n    rate_limits:\n      - {{ name: small, unit: {unit}, {small}, tiers: {{ pro: 20 }} }}\n      - {{ name: large, unit: {unit}, {large} }}\n"
        ));
        for effect in [tier("pro"), number(20)] {
            decide(&rules, store, T0, &[refund("pair=x", 1_000)]);
            let rules = with_rows(&rules, "small", &effect);
            decide(&rules, store, T0, &[refund("pair=x", 1_000)]);
            for hit in 1..=20 {
                let decision = decide(&rules, store, T0, &[hits("pair=x", 1)]);
                assert_eq!(remaining(&decision), [20 - hit; 2], "{unit} {effect:?}");
            }
        }
    }
}

/// The charge of a `reserve` gives back at most what its check took, whatever the number was meanwhile.
pub fn a_charge_gives_back_what_its_check_took(store: &mut impl ReplayStore) {
    const RESERVE: u64 = 500;
    let of_number = |number: u64| {
        let keys =
            format!("requests_per_unit: {number}, reserve: {RESERVE}, tiers: {{ low: 100, pro: 5000 }}");
        rules_of(|kernel| format!("rate_limit: {{ unit: month, {keys}, {kernel} }}"))
    };
    let base = of_number(1_000);
    let times = |text: &str| Effect { multiplier: text.parse().ok(), ..Effect::default() };
    let forms = [
        ("rule", base.clone(), 1_000),
        ("another rule", of_number(700), 700),
        ("low", with_rows(&base, "*", &tier("low")), 100),
        ("pro", with_rows(&base, "*", &tier("pro")), 5_000),
        ("100", with_rows(&base, "*", &number(100)), 100),
        ("a tenth", with_rows(&base, "*", &times("0.1")), 100),
        ("twice", with_rows(&base, "*", &times("2")), 2_000),
    ];
    let mut charged = 0;
    for (kernel, _) in KERNELS {
        let entries = format!("{kernel}=x");
        let used = |store: &mut _| 1_000 - left(&base, store, &entries);
        for ((check, checked_by, before), (charge, charged_by, after)) in
            forms.iter().flat_map(|check| forms.iter().map(move |charge| (check, charge)))
        {
            for (others, cost) in [(0, 450), (0, 800), (300, 1), (300, 650)] {
                // An interval bucket has a counter for each number.
                let with_counters = if kernel == "bucket" { &forms[..] } else { &forms[..1] };
                for (_, form, _) in with_counters {
                    decide(form, store, T0, &[refund(&entries, 10_000)]);
                }
                if others > 0 {
                    let whole = Descriptor { is_whole_cost: true, ..hits(&entries, others) };
                    decide(&base, store, T0, &[whole]);
                }
                let decision = decide(checked_by, store, T0, &[hits(&entries, 0)]);
                if decision.overall == engine::Code::OverLimit {
                    continue;
                }
                charged += 1;
                decide(charged_by, store, T0, &[hits(&entries, cost)]);
                let here = format!("{kernel}: {others} used, check by {check}, {cost} charged by {charge}");
                match kernel {
                    // The units of another number are others: the share stays, or nothing.
                    "gcra" | "bucket" if before != after => {
                        let given_back = RESERVE.saturating_sub(cost) * 1_000 / (*after).min(1_000);
                        let least = if kernel == "gcra" && before < after { others } else { 0 };
                        assert!(used(store) >= least.max(others.saturating_sub(given_back)), "{here}");
                    }
                    "gcra" | "bucket" => {
                        // The used share stays in GCRA; an interval bucket of another number has another counter.
                        let others = if kernel == "gcra" { others * after / 1_000 } else { others };
                        let has_others = kernel == "gcra" || *after == 1_000;
                        let expected = cost + if has_others { others } else { 0 };
                        let used = after - left(charged_by, store, &entries);
                        assert_eq!(used, expected.min(*after), "{here}");
                    }
                    _ => assert_eq!(used(store), others + cost, "{here}"),
                }
            }
        }
    }
    assert!(charged > 500, "{charged} charges");
}

#[test]
fn memory_leaves_alone_what_a_change_is_not_of() {
    a_limit_of_0_keeps_the_counter(&mut MemoryReplay::new());
    another_limit_of_the_rule_counts_on(&mut MemoryReplay::new());
    a_charge_gives_back_what_its_check_took(&mut MemoryReplay::new());
}
