//! A month of one tenant of a language model, by the rules of examples/recipes/llm-tokens.yaml on a virtual clock: what
//! is booked in the end is what the admitted requests have cost, to the token. The recorded calls, replayed, have the
//! same answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ::simulate::replay::{MemoryReplay, Recorded, ReplayStore, replay};
use engine::{Code, Decision, Enforcement, Plan, Receipt, RuleSet};
use serde_json::{Value, json};

use super::folder;
use super::play::rules_of;
use super::step::time_us;

/// March in Berlin, which has one hour less than 31 days.
const START: &str = "2027-02-28T23:00:00Z";
const END: &str = "2027-03-31T22:00:00Z";
const MONTH_LIMIT: u64 = 50_000_000;
const ESTIMATE: u64 = 2_000;
/// Answers take up to two minutes, so the last request is earlier than this before the end.
const LONGEST_US: u64 = 120_000_000;

/// Random numbers: SplitMix64 by Sebastiano Vigna, <https://prng.di.unimi.it/splitmix64.c>.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }
}

/// A call in the format of `ratelimitctl replay`.
fn line(t_us: u64, hits: u64, receipt: Option<&Receipt>) -> String {
    let mut entries = vec![json!({"key": "tenant", "value": "acme"})];
    entries.extend(receipt.map(|receipt| json!({"key": "ratelimitd_receipt", "value": receipt.to_string()})));
    let descriptor = json!({"entries": entries, "hits_addend": hits});
    json!({"t_us": t_us, "domain": "llm", "descriptors": [descriptor]}).to_string()
}

fn decide(rules: &RuleSet, store: &mut impl ReplayStore, line: &str) -> Decision {
    let Recorded { t_us, request } = Recorded::parse(line).expect("a call");
    let plan = Plan::new(rules, &request, t_us).expect("a plan");
    let [outcomes] =
        store.decide(&[(t_us, &plan.charges)]).expect("an answer").try_into().expect("one request");
    Decision::merge(plan, outcomes, Enforcement::Enforce)
}

/// What a month of requests has left.
#[derive(Default)]
struct Played {
    lines: Vec<String>,
    /// The real cost of the admitted requests.
    tokens: u64,
    denied: u64,
}

/// Requests come in bursts, so that many run at the same time and the limit per minute denies some.
fn play(rules: &RuleSet, store: &mut impl ReplayStore, requests: u64) -> Played {
    let mut random = Random(28);
    let span_us = time_us(END) - time_us(START) - LONGEST_US;
    let times = (0..requests).map(|number| number / 80 * (span_us / (requests / 80)));
    let mut times: Vec<u64> =
        times.map(|burst_us| time_us(START) + burst_us + random.below(60_000_000)).collect();
    times[0] = time_us(START);
    times.sort_unstable();
    let mut played = Played::default();
    // The end, the real cost, and the receipt.
    let mut running: BinaryHeap<Reverse<(u64, u64, String)>> = BinaryHeap::new();
    let mut times = times.into_iter().peekable();
    while times.peek().is_some() || !running.is_empty() {
        let next_end = running.peek().map(|Reverse((end_us, ..))| *end_us);
        if let Some(at_us) = times.next_if(|at_us| next_end.is_none_or(|end_us| *at_us < end_us)) {
            played.lines.push(line(at_us, ESTIMATE, None));
            let decision = decide(rules, store, played.lines.last().expect("was pushed"));
            if decision.overall == Code::OverLimit {
                played.denied += 1;
                continue;
            }
            let tokens = random.below(4_000);
            played.tokens += tokens;
            let receipt = decision.receipt(|| at_us).expect("the limits settle");
            running.push(Reverse((at_us + random.below(LONGEST_US), tokens, receipt.to_string())));
        } else if let Some(Reverse((end_us, tokens, receipt))) = running.pop() {
            let receipt = receipt.parse().expect("a receipt");
            played.lines.push(line(end_us, tokens, Some(&receipt)));
            decide(rules, store, played.lines.last().expect("was pushed"));
        }
    }
    played
}

/// Plays the month in one store, and replays its calls in another one. `fresh` makes an empty store.
pub(crate) fn play_month<S: ReplayStore>(requests: u64, fresh: impl Fn() -> S) {
    let (rules, _) = rules_of(&folder().join("llm-tokens.yaml"));
    let mut store = fresh();
    let mut played = play(&rules, &mut store, requests);
    assert!(played.denied > requests / 50 && played.denied < requests / 2, "{} are denied", played.denied);
    // Just before the end of the month, and at its end. Nothing of the last minute is left then.
    for t_us in [time_us(END) - 1, time_us(END)] {
        played.lines.push(line(t_us, 0, None));
    }
    let mut answers = Vec::new();
    let calls = played.lines.join("\n");
    replay(&rules, &mut fresh(), (calls.as_bytes(), &mut answers), |_| ()).expect("answers");
    let answers: Vec<Value> =
        String::from_utf8(answers).expect("text").lines().map(|line| line.parse().expect("JSON")).collect();
    assert_eq!(answers.len(), played.lines.len());
    let denied = answers.iter().filter(|answer| answer["overall_code"] == "OVER_LIMIT").count();
    assert_eq!(denied as u64, played.denied, "the replay denies the same number of requests");
    let [last, next_month] = &answers[answers.len() - 2..] else { panic!("two checks") };
    let left = |answer: &Value| answer["statuses"][0]["limit_remaining"].as_u64().expect("a number");
    assert_eq!(last["statuses"][0]["rule"], "tokens-per-month");
    assert_eq!(MONTH_LIMIT - left(last), played.tokens, "booked, and real");
    assert_ne!(left(next_month), left(last));
    // The store in which the month was played has the same in the end.
    let decision = decide(&rules, &mut store, &played.lines[played.lines.len() - 2]);
    let month = decision.limit_results().find(|result| &*result.limit.label == "tokens-per-month");
    assert_eq!(MONTH_LIMIT - month.expect("the limit").outcome.report.remaining, played.tokens);
}

#[test]
fn the_tokens_booked_in_a_month_are_the_real_ones_in_memory() {
    play_month(12_000, MemoryReplay::new);
}
