//! One picture per algorithm under the same traffic: which hits it admits, and how many units are in use.

use super::markup::Markup;
use base::clock::ManualClock;
use engine::{
    Algorithm, Caller, Defaults, Descriptor, DomainSpec, Entry, Limit, LimitSpec, NodeSpec, Pacing, Period,
    Plan, Refill, Request, RuleSet, RuleSpec, Unit, ValueHashing, Verdict,
};
use store::memory::{MemoryOptions, MemoryStore};

use super::compare_or_update;

/// A minute boundary: ten-second windows begin here.
const T0: u64 = 1_700_000_040_000_000;
const SECONDS: u64 = 40;
const LIMIT: u32 = 10;

/// The times of the hits in milliseconds: 1 per second, a burst of 12 just before a window ends, another just after the
/// next window starts, a pause, then 4 per second.
fn traffic() -> Vec<u64> {
    let steady = (0..8).map(|n| 500 + 1_000 * n);
    let before_the_window_ends = (0..12).map(|n| 9_300 + 50 * n);
    let after_the_window_starts = (0..12).map(|n| 10_200 + 50 * n);
    let overload = (0..60).map(|n| 22_000 + 250 * n);
    let mut all: Vec<u64> =
        steady.chain(before_the_window_ends).chain(after_the_window_starts).chain(overload).collect();
    all.sort_unstable();
    all
}

struct Panel {
    file: &'static str,
    title: &'static str,
    limit: LimitSpec,
}

fn limit(algorithm: Algorithm) -> LimitSpec {
    let period = Period::new(Unit::Second, 10).expect("ten seconds");
    LimitSpec { burst: algorithm.has_burst().then_some(5), ..LimitSpec::new(algorithm, LIMIT.into(), period) }
}

fn panels() -> Vec<Panel> {
    vec![
        Panel {
            file: "fixed_window",
            title: "fixed_window: 10 per 10 s",
            limit: limit(Algorithm::FixedWindow),
        },
        Panel {
            file: "sliding_window",
            title: "sliding_window: 10 per 10 s",
            limit: limit(Algorithm::SlidingWindow),
        },
        Panel { file: "sliding_log", title: "sliding_log: 10 per 10 s", limit: limit(Algorithm::SlidingLog) },
        Panel { file: "gcra", title: "gcra: 10 per 10 s, burst 5", limit: limit(Algorithm::Gcra) },
        Panel {
            file: "token_bucket_interval",
            title: "token_bucket, refill: interval, 10 every 10 s, burst 10",
            limit: LimitSpec { refill: Refill::Interval, burst: Some(10), ..limit(Algorithm::TokenBucket) },
        },
        Panel {
            file: "leaky_bucket_queue",
            title: "leaky_bucket, mode: queue, 10 per 10 s, holds 5 (ticks stand where the hit may go ahead)",
            limit: LimitSpec { pacing: Pacing::Queue, ..limit(Algorithm::LeakyBucket) },
        },
    ]
}

/// A hit: its time, the time at which it may proceed if it is admitted, and the units in use afterwards.
struct Hit {
    at_ms: u64,
    proceeds_ms: Option<u64>,
    used: u64,
}

fn plan(limit: LimitSpec) -> Plan {
    let rule = RuleSpec { limits: vec![Limit::new(limit).expect("a valid limit")], ..RuleSpec::default() };
    let node = NodeSpec { key: "user".to_owned(), rule: Some(rule), ..NodeSpec::default() };
    let domain = DomainSpec { domain: "docs".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
    let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE)
        .expect("the limit is valid");
    let entry = Entry { key: "user".to_owned(), value: "alice".to_owned() };
    let descriptor = Descriptor { entries: vec![entry], ..Descriptor::default() };
    let request = Request {
        domain: "docs".to_owned(),
        hits_addend: 1,
        descriptors: vec![descriptor],
        caller: Caller::default(),
    };
    Plan::new(&rules, &request, 0).expect("the request is valid")
}

fn decide(limit: &LimitSpec) -> Vec<Hit> {
    let plan = plan(limit.clone());
    let store = MemoryStore::new(MemoryOptions::default(), ManualClock::default());
    let max = limit.capacity();
    let hits = traffic().into_iter().map(|at_ms| {
        let outcome = store.decide_at(&plan.charges, T0 + at_ms * 1_000).by_charge[0];
        let delay_ms = outcome.report.delay_us / 1_000;
        let proceeds_ms = (outcome.verdict == Verdict::Fits).then_some(at_ms + delay_ms);
        Hit { at_ms, proceeds_ms, used: max - outcome.report.remaining }
    });
    hits.collect()
}

fn draw(panel: &Panel) -> String {
    let hits = decide(&panel.limit);
    let x = |ms: u64| 10 + ms * 20 / 1_000;
    let admitted = hits.iter().filter(|hit| hit.proceeds_ms.is_some()).count();
    let mut svg = Markup::default();
    svg.raw("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 920 150\" font-family=\"sans-serif\" font-size=\"12\">\n");
    svg.raw("<rect width=\"920\" height=\"150\" fill=\"white\"/>\n");
    svg.fill(
        "<text x=\"10\" y=\"16\">{} — {} of {} hits admitted</text>\n",
        &[&panel.title, &admitted, &hits.len()],
    );
    for second in (0..=SECONDS).step_by(10) {
        let x = x(second * 1_000);
        svg.fill(
            "<path d=\"M{} 24V132\" stroke=\"#bbb\" stroke-dasharray=\"3 3\"/><text x=\"{}\" y=\"146\" fill=\"#555\">{} s</text>\n",
            &[&x, &x, &second],
        );
    }
    for hit in &hits {
        let height = hit.used * 40 / panel.limit.capacity();
        let color = if hit.proceeds_ms.is_some() { "#2a7" } else { "#c33" };
        let (top, at) =
            (if hit.proceeds_ms.is_some() { 30 } else { 56 }, x(hit.proceeds_ms.unwrap_or(hit.at_ms)));
        svg.fill("<path d=\"M{} {}v20\" stroke=\"{}\" stroke-width=\"2\"/>\n", &[&at, &top, &color]);
        svg.fill("<path d=\"M{} 126v-{}\" stroke=\"#79b\" stroke-width=\"2\"/>\n", &[&x(hit.at_ms), &height]);
    }
    svg.raw("<text x=\"840\" y=\"44\" fill=\"#2a7\">admitted</text><text x=\"840\" y=\"70\" fill=\"#c33\">denied</text><text x=\"840\" y=\"110\" fill=\"#579\">share in use</text>\n</svg>\n");
    svg.into_text()
}

#[test]
fn pictures_show_the_decisions_of_the_engine() {
    for panel in panels() {
        compare_or_update(&format!("docs/pictures/{}.svg", panel.file), &draw(&panel));
    }
}
