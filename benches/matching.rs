//! The cost of one match with 1, 100 and 10,000 rules at a level, which should be equal; with 1, 10 and 100 wildcards,
//! where it may grow with their number; with long values, where it may grow with their length, whatever their
//! characters and the number of wildcards; and with secret values, which are hashed.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use engine::{
    Algorithm, Caller, Defaults, Descriptor, DomainSpec, Entry, HashKey, Limit, LimitSpec, NodeSpec, Period,
    Plan, Request, RuleSet, RuleSpec, Unit, ValueHashing,
};

/// Bytes of a long value.
const LONG: usize = 16 * 1024;
/// Different requests, matched in turn.
const REQUESTS: usize = 128;

fn limit() -> Limit {
    Limit::new(LimitSpec::new(Algorithm::Gcra, 100, Period::one(Unit::Minute))).expect("a valid limit")
}

fn rules(count: usize, value: impl Fn(usize) -> String) -> RuleSet {
    rules_with(count, value, false)
}

fn rules_with(count: usize, value: impl Fn(usize) -> String, secret: bool) -> RuleSet {
    let node = |n| NodeSpec {
        key: "tenant".to_owned(),
        value: value(n),
        secret,
        rule: Some(RuleSpec { limits: vec![limit()], ..RuleSpec::default() }),
        ..NodeSpec::default()
    };
    let domain = DomainSpec {
        domain: "bench".to_owned(),
        descriptors: (0..count).map(node).collect(),
        ..DomainSpec::default()
    };
    let hashing = ValueHashing { key: Some(HashKey::new(b"the key of a bench")), all_values: false };
    RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, hashing).expect("the rules are valid")
}

fn request(value: &str) -> Request {
    let entry = Entry { key: "tenant".to_owned(), value: value.to_owned() };
    let descriptor = Descriptor { entries: vec![entry], ..Descriptor::default() };
    Request {
        domain: "bench".to_owned(),
        hits_addend: 0,
        descriptors: vec![descriptor],
        caller: Caller::default(),
    }
}

fn matching(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("match and key, exact value, rules at the level");
    for count in [1, 100, 10_000] {
        let rules = rules(count, |n| format!("t{n}"));
        // The same number of requests for each number of rules, so that only the rules differ.
        let requests: Vec<_> = (0..REQUESTS).map(|n| request(&format!("t{}", n * 7_919 % count))).collect();
        let mut turn = requests.iter().cycle();
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| turn.next().map(|request| black_box(Plan::new(&rules, black_box(request), 0))));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("match and key, wildcards at the level");
    for count in [1, 10, 100] {
        let rules = rules(count, |n| format!("prefix{n}-*"));
        let request = request(&format!("prefix{}-x", count - 1));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| black_box(Plan::new(&rules, black_box(&request), 0)));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("match and key, long values and secret values");
    let exact = rules(1, |_| String::new());
    let secret = rules_with(1, |_| String::new(), true);
    let infixes = rules(100, |n| format!("*/v{n}/*"));
    let cases = [
        ("short", &exact, "alice".to_owned()),
        ("short, secret", &secret, "alice".to_owned()),
        ("16 KiB of letters", &exact, "a".repeat(LONG)),
        ("16 KiB of letters, secret", &secret, "a".repeat(LONG)),
        ("16 KiB of %", &exact, "%".repeat(LONG)),
        ("short, 100 infix wildcards", &infixes, "/api/v99/users".to_owned()),
        ("16 KiB of letters, 100 infix wildcards", &infixes, "a".repeat(LONG)),
        ("16 KiB of /v, 100 infix wildcards", &infixes, "/v".repeat(LONG / 2)),
    ];
    for (name, rules, value) in cases {
        let request = request(&value);
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(Plan::new(rules, black_box(&request), 0)));
        });
    }
    group.finish();
}

criterion_group!(benches, matching);
criterion_main!(benches);
