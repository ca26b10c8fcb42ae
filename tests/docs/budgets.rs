//! The picture of docs/budgets.md: how much of a demand each way of charging admits, decided by the engine.
//!
//! A model in whole numbers with fixed seeds. Requests come at random, twice as many tokens as the limit. Nobody knows
//! the tokens of a request before its end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::markup::Markup;
use base::clock::ManualClock;
use engine::{
    Algorithm, Caller, Charging, Code, Decision, Defaults, Descriptor, DomainSpec, Enforcement, Entry, Limit,
    LimitSpec, NodeSpec, Period, Plan, Receipt, Request, RuleSet, RuleSpec, Unit, ValueHashing,
};
use store::memory::{MemoryOptions, MemoryStore};

use super::compare_or_update;

/// A minute boundary.
const T0_MS: u64 = 1_700_000_040_000;
const MINUTE_MS: u64 = 60_000;
const MINUTES: usize = 60;
const SEEDS: [u64; 3] = [1, 2, 3];
/// Tokens per minute.
const LIMIT: u64 = 100_000;
/// The tokens of a request: twenty values with the same probability, in the proportions of a lognormal distribution
/// with a sigma of 0.8. Their mean is 1,500.
const TOKENS: [u64; 20] = [
    230, 350, 450, 530, 610, 690, 780, 870, 960, 1_060, 1_180, 1_300, 1_440, 1_610, 1_800, 2_050, 2_360,
    2_810, 3_540, 5_380,
];
/// How long an answer takes in milliseconds, with a sigma of 0.6 and a mean of 15 seconds.
const RUNS_MS: [u64; 20] = [
    3_900, 5_400, 6_400, 7_200, 8_100, 8_900, 9_700, 10_500, 11_300, 12_200, 13_200, 14_200, 15_400, 16_700,
    18_200, 20_000, 22_200, 25_300, 30_100, 41_100,
];
/// The probability of a request in a millisecond, in millionths: 200,000 tokens in a minute.
const ARRIVALS: u64 = 2_222;

/// Random numbers: SplitMix64 by Sebastiano Vigna, <https://prng.di.unimi.it/splitmix64.c>.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }

    fn one_of(&mut self, values: &[u64; 20]) -> u64 {
        values[self.below(20) as usize]
    }
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at_ms: u64,
    tokens: u64,
    runs_ms: u64,
}

fn demand(seed: u64) -> Vec<Asked> {
    let mut random = Random(seed);
    let mut demand = Vec::new();
    for at_ms in 0..MINUTES as u64 * MINUTE_MS {
        if random.below(1_000_000) < ARRIVALS {
            let (tokens, runs_ms) = (random.one_of(&TOKENS), random.one_of(&RUNS_MS));
            demand.push(Asked { at_ms, tokens, runs_ms });
        }
    }
    demand
}

/// A way to charge tokens that are known only at the end.
#[derive(Clone, Copy, Debug)]
enum Design {
    /// A check that charges nothing, and a charge after the answer.
    CheckThenCharge,
    /// The same calls, with `reserve`.
    Reserve(u64),
    /// A charge of the estimate, and a settle.
    Receipt(u64),
}

impl Design {
    fn limit(self) -> LimitSpec {
        let limit = LimitSpec::new(Algorithm::FixedWindow, LIMIT, Period::one(Unit::Minute));
        match self {
            Self::CheckThenCharge => LimitSpec { charging: Charging::Postpaid, ..limit },
            Self::Reserve(units) => LimitSpec { charging: Charging::Prepaid, reserve: Some(units), ..limit },
            Self::Receipt(_) => LimitSpec { charging: Charging::Prepaid, settle: true, ..limit },
        }
    }

    /// The hits of the call before a request.
    fn hits_before(self) -> u64 {
        if let Self::Receipt(estimate) = self { estimate } else { 0 }
    }

    fn title(self) -> String {
        match self {
            Self::CheckThenCharge => "check, then charge".to_owned(),
            Self::Reserve(units) => format!("reserve: {units}"),
            Self::Receipt(estimate) => format!("settle: true, estimate {estimate}"),
        }
    }

    /// The real tokens of the admitted requests, by the minute in which each was admitted.
    fn admitted(self, demand: &[Asked]) -> Vec<u64> {
        let gateway = Gateway::new(self.limit());
        let mut admitted = vec![0; MINUTES];
        let mut running = BinaryHeap::new();
        let mut receipts: Vec<Option<Receipt>> = vec![None; demand.len()];
        let mut asked = demand.iter().enumerate().peekable();
        loop {
            let next_end = running.peek().map(|Reverse((end_ms, _))| *end_ms);
            let arrives_first =
                asked.peek().is_some_and(|(_, next)| next_end.is_none_or(|end_ms| next.at_ms < end_ms));
            if arrives_first {
                let (number, next) = asked.next().expect("was peeked");
                let decision = gateway.decide(next.at_ms, self.hits_before(), None);
                if decision.overall == Code::Ok {
                    admitted[(next.at_ms / MINUTE_MS) as usize] += next.tokens;
                    receipts[number] = decision.receipt(|| number as u64);
                    running.push(Reverse((next.at_ms + next.runs_ms, number)));
                }
            } else if let Some(Reverse((end_ms, number))) = running.pop() {
                gateway.decide(end_ms, demand[number].tokens, receipts[number].take());
            } else {
                return admitted;
            }
        }
    }
}

/// One limit with its counter, in the engine.
struct Gateway {
    rules: RuleSet,
    store: MemoryStore<ManualClock>,
}

impl Gateway {
    fn new(limit: LimitSpec) -> Self {
        let limits = vec![Limit::new(limit).expect("a valid limit")];
        let rule = RuleSpec { limits, ..RuleSpec::default() };
        let node = NodeSpec { key: "tenant".to_owned(), rule: Some(rule), ..NodeSpec::default() };
        let domain =
            DomainSpec { domain: "llm".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
        let rules =
            RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules");
        Self { rules, store: MemoryStore::new(MemoryOptions::default(), ManualClock::default()) }
    }

    fn decide(&self, at_ms: u64, hits: u64, receipt: Option<Receipt>) -> Decision {
        let entry = Entry { key: "tenant".to_owned(), value: "acme".to_owned() };
        let receipt = receipt.map(|receipt| Box::new(Ok(receipt)));
        let descriptor =
            Descriptor { entries: vec![entry], hits: Some(hits), receipt, ..Descriptor::default() };
        let caller = Caller::default();
        let request =
            Request { domain: "llm".to_owned(), hits_addend: 1, descriptors: vec![descriptor], caller };
        let now_us = (T0_MS + at_ms) * 1_000;
        let plan = Plan::new(&self.rules, &request, now_us).expect("a valid request");
        let outcomes = self.store.decide_at(&plan.charges, now_us);
        Decision::merge(plan, outcomes, Enforcement::Enforce)
    }
}

/// The worst and the mean minute over all seeds, in percent of the limit. The first minute starts with no request
/// running.
fn shares(design: Design) -> (u64, u64) {
    let minutes: Vec<u64> =
        SEEDS.iter().flat_map(|seed| design.admitted(&demand(*seed)).split_off(1)).collect();
    let worst = minutes.iter().copied().max().unwrap_or(0);
    let sum: u64 = minutes.iter().sum();
    (worst * 100 / LIMIT, sum * 100 / (LIMIT * minutes.len() as u64))
}

const DESIGNS: [Design; 4] =
    [Design::CheckThenCharge, Design::Reserve(1_500), Design::Receipt(1_500), Design::Receipt(4_000)];

/// Pixels for the limit.
const LIMIT_PX: u64 = 44;
const PANEL_PX: u64 = 150;

fn draw_panel(svg: &mut Markup, design: Design, top: u64) {
    let demand = demand(SEEDS[0]);
    let mut demanded = vec![0; MINUTES];
    for asked in &demand {
        demanded[(asked.at_ms / MINUTE_MS) as usize] += asked.tokens;
    }
    let (worst, mean) = shares(design);
    svg.fill(
        "<text class=\"name\" x=\"10\" y=\"{}\">{}</text><text x=\"240\" y=\"{}\">admitted: {} % of the limit on average, {} % in the worst minute</text>\n",
        &[&(top + 16), &design.title(), &(top + 16), &mean, &worst],
    );
    let floor = top + PANEL_PX - 8;
    let px = |tokens: u64| tokens * LIMIT_PX / LIMIT;
    for (minute, (demanded, admitted)) in demanded.iter().zip(design.admitted(&demand)).enumerate() {
        let x = 10 + minute * 13;
        let within = px(admitted.min(LIMIT));
        let above = px(admitted.saturating_sub(LIMIT));
        svg.fill("<path class=\"demand\" d=\"M{} {}v-{}\"/>", &[&(x + 5), &floor, &px(*demanded)]);
        svg.fill("<path class=\"within\" d=\"M{} {}v-{}\"/>", &[&(x + 5), &floor, &within]);
        svg.fill("<path class=\"above\" d=\"M{} {}v-{}\"/>\n", &[&(x + 5), &(floor - within), &above]);
    }
    svg.fill("<path class=\"limit\" d=\"M10 {}h780\"/>", &[&(floor - LIMIT_PX)]);
    svg.fill("<text class=\"small\" x=\"796\" y=\"{}\">limit</text>\n", &[&(floor - LIMIT_PX + 4)]);
}

fn draw() -> String {
    let height = DESIGNS.len() as u64 * PANEL_PX + 30;
    let mut svg = Markup::default();
    svg.fill(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 840 {}\" font-family=\"sans-serif\" font-size=\"12\">\n",
        &[&height],
    );
    svg.fill("<rect class=\"paper\" width=\"840\" height=\"{}\"/>\n", &[&height]);
    svg.raw(
        "<style>\n\
         .paper { fill: #fff } text { fill: #222 } .name { font-weight: bold } .small { fill: #555; font-size: 11px }\n\
         path { fill: none; stroke-width: 10 } .demand { stroke: #dde1e8 } .within { stroke: #2a8a7a } .above { stroke: #c33 }\n\
         .limit { stroke: #222; stroke-width: 1; stroke-dasharray: 5 3 }\n\
         @media (prefers-color-scheme: dark) {\n\
         .paper { fill: #14171c } text { fill: #e6e8ec } .small { fill: #a8afbb } .demand { stroke: #333a45 }\n\
         .within { stroke: #3fb5a0 } .above { stroke: #ff6b60 } .limit { stroke: #e6e8ec }\n\
         }\n</style>\n",
    );
    svg.raw(
        "<text class=\"small\" x=\"10\" y=\"18\">tokens per minute: grey is the demand, green what is admitted within the limit, red what is admitted above it</text>\n",
    );
    for (number, design) in DESIGNS.into_iter().enumerate() {
        draw_panel(&mut svg, design, 24 + number as u64 * PANEL_PX);
    }
    svg.raw("</svg>\n");
    svg.into_text()
}

#[test]
fn the_picture_of_the_budgets_shows_the_decisions_of_the_engine() {
    compare_or_update("docs/pictures/budgets.svg", &draw());
}

#[test]
fn the_page_of_the_budgets_has_the_numbers_of_the_picture() {
    let page = std::fs::read_to_string("docs/budgets.md").expect("docs/budgets.md");
    for design in DESIGNS {
        let (worst, mean) = shares(design);
        let row = format!("| {} | {mean} % | {worst} % |", design.title());
        assert!(page.contains(&row), "docs/budgets.md does not have\n{row}");
    }
}
