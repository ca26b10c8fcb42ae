//! The cost of a look-up in a million tiers: of values that are asked again and again, of random ones, and of values
//! without a row. And what exceptions add to the plan of a request: with no row, with rows for another key, with a row,
//! and with 100,000 live rows.

use std::hash::RandomState;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use engine::{
    Algorithm, Caller, Defaults, Descriptor, DomainSpec, Effect, Entry, ExceptionRow, Exceptions,
    ExceptionsBuilder, Glob, Limit, LimitSpec, LiveRows, NodeSpec, Period, Plan, Request, RowSource,
    RowTerms, RowValue, RuleSet, RuleSpec, Tier, TierMark, TierRow, TierTable, TierTableBuilder, Unit,
    ValueHashing,
};

const ROWS: usize = 1_000_000;
/// Values that are asked in turn: more than the caches hold, but for the active ones.
const ASKED: usize = 1 << 20;
const ACTIVE: usize = 2_000;

fn value(row: usize) -> String {
    format!("tenant-{row:07}")
}

fn table() -> TierTable {
    let mut builder = TierTableBuilder::new(&RandomState::new());
    builder.add_space("llm", "tenant");
    for row in 0..ROWS {
        let mark = TierMark::new(1 + u16::try_from(row % 3).expect("a small number")).expect("not 0");
        builder.add(0, &value(row), mark);
    }
    builder.build(None, |_, _| true, |_| {})
}

fn look_up(criterion: &mut Criterion) {
    let table = table();
    println!("{} values in {} bytes", table.len(), table.bytes());
    let space = table.space("llm", "tenant");
    let mut random = fastrand::Rng::with_seed(1);
    let active: Vec<usize> = (0..ACTIVE).map(|_| random.usize(..ROWS)).collect();
    let mut values = |row: &mut dyn FnMut(&mut fastrand::Rng) -> usize| -> Vec<String> {
        (0..ASKED).map(|_| value(row(&mut random))).collect()
    };
    let cases = [
        ("2,000 active values", values(&mut |random| active[random.usize(..ACTIVE)])),
        ("random values of a million", values(&mut |random| random.usize(..ROWS))),
        ("values without a row", values(&mut |random| ROWS + random.usize(..ROWS))),
    ];
    let mut group = criterion.benchmark_group("look-up in a million tiers");
    for (name, values) in &cases {
        let mut turn = values.iter().cycle();
        group.bench_function(*name, |bencher| {
            bencher.iter(|| turn.next().map(|value| black_box(table.get(space, black_box(value)))));
        });
    }
    group.finish();
}

fn rules() -> RuleSet {
    let tiers = [("pro".to_owned(), Tier::Limited { requests_per_unit: 600, burst: None })].into();
    let spec = LimitSpec { tiers, ..LimitSpec::new(Algorithm::Gcra, 60, Period::one(Unit::Minute)) };
    let limits = vec![Limit::new(spec).expect("a valid limit")];
    let rule = Some(RuleSpec { limits, ..RuleSpec::default() });
    let node = NodeSpec { key: "tenant".to_owned(), rule, ..NodeSpec::default() };
    let domain = DomainSpec { domain: "llm".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
    RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("the rules are valid")
}

fn exceptions(key: &str) -> Arc<Exceptions> {
    let none = Exceptions::default();
    let mut builder = ExceptionsBuilder::new(&none);
    let file: Arc<str> = "tenants.csv".into();
    for row in 0..1_000 {
        let row = TierRow { file: &file, domain: "llm", key, value: &value(row), tier: "pro" };
        builder.add_tier(row).expect("one tier");
    }
    Arc::new(builder.build(&none, |_| {}))
}

const LIVE_ROWS: usize = 100_000;

fn live_rows() -> LiveRows {
    let mut live = LiveRows::default();
    let terms = Arc::new(RowTerms {
        domain: Glob::new("llm"),
        key: "tenant".into(),
        effect: Effect { tier: Some("pro".into()), ..Effect::default() },
        ..RowTerms::default()
    });
    for row in 0..LIVE_ROWS {
        let source = RowSource::Live { id: format!("{row:012}").into(), version: row as u64 };
        live.insert(Arc::new(ExceptionRow {
            source,
            value: RowValue::Exact(value(row).into()),
            from_us: None,
            until_us: None,
            terms: Arc::clone(&terms),
        }));
    }
    live
}

fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan of a request");
    let without = rules();
    let files = |key| without.with_exceptions(exceptions(key), &LiveRows::default());
    let live = without.with_exceptions(Arc::default(), &live_rows());
    // The values that are asked.
    let cases = [
        ("without exceptions", without.clone(), 0..1_000),
        ("rows for another key", files("user"), 0..1_000),
        ("a row with a tier", files("tenant"), 0..1_000),
        ("without exceptions, values of live rows", without.clone(), 0..LIVE_ROWS),
        ("a live row with a tier", live.clone(), 0..LIVE_ROWS),
        ("live rows for other values", live, LIVE_ROWS..2 * LIVE_ROWS),
    ];
    let mut random = fastrand::Rng::with_seed(1);
    for (name, rules, values) in cases {
        let requests: Vec<_> = (0..10_000).map(|_| request(random.usize(values.clone()))).collect();
        let mut turn = requests.iter().cycle();
        group.bench_function(name, |bencher| {
            bencher.iter(|| turn.next().map(|request| black_box(Plan::new(&rules, black_box(request), 0))));
        });
    }
    group.finish();
}

fn request(row: usize) -> Request {
    let entry = Entry { key: "tenant".to_owned(), value: value(row) };
    let descriptor = Descriptor { entries: vec![entry], ..Descriptor::default() };
    let domain = "llm".to_owned();
    Request { domain, hits_addend: 0, descriptors: vec![descriptor], caller: Caller::default() }
}

criterion_group!(benches, look_up, plan);
criterion_main!(benches);
