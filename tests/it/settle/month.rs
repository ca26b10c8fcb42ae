//! A month of a tenant on a virtual clock, through replay: the units that are booked are the real ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ::simulate::replay::{MemoryReplay, ReplayStore, replay};
use engine::RuleSet;
use serde_json::{Value, json};

use crate::rules;

const SECOND_US: u64 = 1_000_000;
const MONTH_US: u64 = 30 * 86_400 * SECOND_US;
const BUDGET: u64 = 4_000_000_000;
const ESTIMATE: u64 = 2_000;

const RULES: &str = "
domain: llm
descriptors:
  - key: minute
    rate_limit: { unit: minute, requests_per_unit: 10000, algorithm: sliding_window, settle: true }
  - key: month
    rate_limit: { unit: month, requests_per_unit: 4000000000, algorithm: fixed_window, settle: true }
";

/// What happens at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request,
    /// The stream of an admitted request ends.
    End {
        receipt: String,
        tokens: u64,
    },
}

struct Month<'s, S> {
    rules: RuleSet,
    store: &'s mut S,
}

impl<S: ReplayStore> Month<'_, S> {
    /// Replays one request, with entries after those of the tenant. Returns the answer.
    fn play(&mut self, t_us: u64, receipt: Option<&str>, hits: u64) -> Value {
        let descriptor = |key: &str| {
            let mut entries = vec![json!({"key": key, "value": "acme"})];
            entries.extend(receipt.map(|receipt| json!({"key": "ratelimitd_receipt", "value": receipt})));
            json!({"entries": entries, "hitsAddend": hits})
        };
        let line = json!({"t_us": t_us, "domain": "llm", "descriptors": [descriptor("minute"), descriptor("month")]});
        let mut answer = Vec::new();
        replay(&self.rules, self.store, (line.to_string().as_bytes(), &mut answer), |_| {})
            .expect("an answer");
        serde_json::from_slice(&answer).expect("JSON")
    }
}

/// Plays a month with a request about every five minutes, some of them in crowds. Returns the admitted, the denied.
pub(crate) fn check_a_month(store: &mut impl ReplayStore) -> (u64, u64) {
    let mut month = Month { rules: rules::rules(RULES), store };
    let mut random = fastrand::Rng::with_seed(7);
    // The store of a replay may be a Redis, which expires keys by its own clock.
    let start_us = 700 * MONTH_US;
    let mut events = BinaryHeap::from([Reverse((start_us, Event::Request))]);
    let (mut real, mut admitted, mut denied) = (0, 0, 0);
    let end_us = start_us + MONTH_US - 120 * SECOND_US;
    while let Some(Reverse((now_us, event))) = events.pop() {
        match event {
            Event::Request => {
                let pause_s = if random.u8(..4) == 0 { random.u64(300..1_800) } else { random.u64(..20) };
                let next_us = now_us + pause_s * SECOND_US + random.u64(..SECOND_US);
                events.extend((next_us < end_us).then_some(Reverse((next_us, Event::Request))));
                let answer = month.play(now_us, None, ESTIMATE);
                let Some(receipt) = answer["receipt"].as_str() else {
                    assert_eq!(answer["overall_code"], "OVER_LIMIT", "{answer}");
                    denied += 1;
                    continue;
                };
                admitted += 1;
                // Most answers are short, and some are long. A stream takes up to 90 seconds.
                let tokens = random.u64(1..1_500) * if random.u8(..8) == 0 { 6 } else { 1 };
                real += tokens;
                let ends_us = now_us + random.u64(SECOND_US..90 * SECOND_US);
                events.push(Reverse((ends_us, Event::End { receipt: receipt.to_owned(), tokens })));
            }
            Event::End { receipt, tokens } => {
                let answer = month.play(now_us, Some(&receipt), tokens);
                assert_eq!((&answer["overall_code"], &answer["receipt"]), (&json!("OK"), &Value::Null));
            }
        }
    }
    let last = month.play(start_us + MONTH_US - 1, None, 0);
    let left = last["statuses"][1]["limit_remaining"].as_u64().expect("a number");
    assert_eq!(BUDGET - left, real, "booked, real; {admitted} admitted, {denied} denied");
    (admitted, denied)
}

#[test]
fn the_booked_tokens_of_a_month_are_the_real_ones() {
    let (admitted, denied) = check_a_month(&mut MemoryReplay::new());
    assert!(admitted > 5_000 && denied > 100, "{admitted} admitted, {denied} denied");
}
