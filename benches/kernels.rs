//! The cost of one decision on the memory store by algorithm: look-up, verdict, record and report.

use std::hint::black_box;

use base::clock::{Clock, SystemClock};
use criterion::{Criterion, criterion_group, criterion_main};
use engine::{
    Algorithm, Caller, Defaults, Descriptor, DomainSpec, Entry, Limit, LimitSpec, NodeSpec, Period, Plan,
    Request, RuleSet, RuleSpec, Unit, ValueHashing,
};
use store::memory::{MemoryOptions, MemoryStore};

fn plan(algorithm: Algorithm) -> Plan {
    let limit = LimitSpec::new(algorithm, 1_000, Period::one(Unit::Second));
    let rule = RuleSpec { limits: vec![Limit::new(limit).expect("a valid limit")], ..RuleSpec::default() };
    let node = NodeSpec { key: "user".to_owned(), rule: Some(rule), ..NodeSpec::default() };
    let domain = DomainSpec { domain: "bench".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
    let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE)
        .expect("the rules are valid");
    let entry = Entry { key: "user".to_owned(), value: "alice".to_owned() };
    let descriptor = Descriptor { entries: vec![entry], ..Descriptor::default() };
    let request = Request {
        domain: "bench".to_owned(),
        hits_addend: 0,
        descriptors: vec![descriptor],
        caller: Caller::default(),
    };
    Plan::new(&rules, &request, 0).expect("the request is valid")
}

fn kernels(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one decision on the memory store");
    for &algorithm in Algorithm::ALL {
        let plan = plan(algorithm);
        let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
        group.bench_function(algorithm.into_str(), |bencher| {
            bencher.iter(|| black_box(store.decide_at(black_box(&plan.charges), SystemClock.now_us())));
        });
    }
    group.finish();
}

criterion_group!(benches, kernels);
criterion_main!(benches);
