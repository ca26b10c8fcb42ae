//! Known answers of several descriptors of one call that use one counter: estimates and settles of one tenant, in any
//! order. The stories have random ones.

use ::base::clock::SystemClock;
use ::simulate::replay::{MemoryReplay, ReplayStore, replay};
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{Charges, Code, Decision, Descriptor, Outcomes, SettleResult};
use serde_json::{Value, json};

use super::{Story, T0, hits, settle};
use crate::rules;

/// The keys of the rules, one for each kernel.
const KERNELS: [&str; 6] = ["fixed", "calendar", "sliding", "log", "gcra", "bucket"];

const RULES: &str = "
domain: d
descriptors:
  - { key: fixed, rate_limit: { unit: day, requests_per_unit: 10, algorithm: fixed_window, settle: true } }
  - { key: calendar, rate_limit: { unit: day, requests_per_unit: 10, algorithm: fixed_window, calendar: UTC, settle: true } }
  - { key: sliding, rate_limit: { unit: day, requests_per_unit: 10, algorithm: sliding_window, settle: true } }
  - { key: log, rate_limit: { unit: day, requests_per_unit: 10, algorithm: sliding_log, settle: true } }
  - { key: gcra, rate_limit: { unit: day, requests_per_unit: 10, algorithm: gcra, settle: true } }
  - { key: bucket, rate_limit: { unit: day, requests_per_unit: 10, algorithm: token_bucket, refill: interval, settle: true } }
  - key: tenant
    descriptors:
      - key: plan
        tier: true
        rate_limit: { unit: day, requests_per_unit: 1000, algorithm: fixed_window, settle: true, tiers: { pro: 2000 } }
";

/// The units that remain of the counter of `entries`.
fn left<D: FnMut(&Charges, u64) -> Outcomes>(story: &mut Story<D>, entries: &str) -> u64 {
    let refund = Descriptor { is_refund: true, ..hits(entries, 0) };
    remaining(&story.play(T0, vec![refund]).0)
}

fn remaining(decision: &Decision) -> u64 {
    decision.limit_results().next().expect("a limit").outcome.report.remaining
}

/// What one call does to one counter, as a table says it.
pub(crate) fn check_one_call(decide: impl FnMut(&Charges, u64) -> Outcomes) {
    let mut story = Story::new(RULES, decide);
    for kernel in KERNELS {
        // A settle with a receipt that has no item, and costs nothing.
        let nothing = |entries: &str, nonce: u64| settle(entries, &format!("1.{nonce}"), 0);
        let entries = format!("{kernel}=a");
        let calls = (0..8).flat_map(|nonce| [hits(&entries, 10), nothing(&entries, nonce)]).collect();
        assert_eq!(story.play(T0, calls).0.overall, Code::OverLimit, "{kernel}: 80 units of 10");
        assert_eq!(left(&mut story, &entries), 10, "{kernel}");

        let entries = format!("{kernel}=b");
        story.play(T0, vec![hits(&entries, 5)]);
        let call = vec![hits(&entries, 5), nothing(&entries, 1), hits(&entries, 5)];
        assert_eq!(story.play(T0, call).0.overall, Code::OverLimit, "{kernel}: 10 units of 5");
        assert_eq!(left(&mut story, &entries), 5, "{kernel}");

        let entries = format!("{kernel}=c");
        let call = vec![hits(&entries, 4), nothing(&entries, 1), hits(&entries, 3)];
        let (decision, receipt) = story.play(T0, call);
        assert_eq!((decision.overall, remaining(&decision)), (Code::Ok, 3), "{kernel}");
        // The receipt has one item with the sum, which its settle gives back.
        story.play(T0, vec![settle(&entries, &receipt.expect("a receipt"), 1)]);
        assert_eq!(left(&mut story, &entries), 9, "{kernel}");

        // Texts that cannot be read are two receipts, also if they are equal.
        for (tenant, texts) in [("d", ["junk1", "junk2"]), ("e", ["", ""])] {
            let entries = format!("{kernel}={tenant}");
            let settles = texts.into_iter().zip([2, 5]).map(|(text, cost)| settle(&entries, text, cost));
            let (decision, _) = story.play(T0, settles.collect());
            let results = [0, 1].map(|index| decision.settle(index).map(|settle| settle.result));
            assert_eq!(results, [Some(SettleResult::Unreadable); 2], "{kernel} {texts:?}");
            assert_eq!(left(&mut story, &entries), 3, "{kernel} {texts:?}");
        }
    }
    check_tiers(&mut story);
    check_settles_of_two_tiers(&mut story);
}

/// A settle has the counter of its estimate, whatever tier stands beside it.
fn check_tiers<D: FnMut(&Charges, u64) -> Outcomes>(story: &mut Story<D>) {
    let (pro, other) = ("tenant=a,plan=pro", "tenant=a,plan=x");
    for is_last in [true, false] {
        let (_, receipt) = story.play(T0, vec![hits(other, 600)]);
        let before = left(story, other);
        let settle = settle(other, &receipt.expect("a receipt"), 100);
        let mut call = vec![hits(pro, 1), settle];
        if !is_last {
            call.reverse();
        }
        let (decision, _) = story.play(T0, call);
        assert_eq!(
            decision.settle(usize::from(is_last)).map(|settle| settle.result),
            Some(SettleResult::Returned)
        );
        assert_eq!(
            left(story, other),
            before + 500 - 1,
            "the settle comes {}",
            if is_last { "last" } else { "first" }
        );
    }
}

/// Estimates of two tiers in one call have two counters. Each settle finds the counter of its estimate, in one call or
/// alone, and in any order.
fn check_settles_of_two_tiers<D: FnMut(&Charges, u64) -> Outcomes>(story: &mut Story<D>) {
    let tiers = |tenant: &str| ["pro", "x"].map(|plan| format!("tenant={tenant},plan={plan}"));
    for (tenant, order) in [("both", &[&[0, 1][..]][..]), ("turned", &[&[1, 0]]), ("apart", &[&[1], &[0]])] {
        let [pro, other] = tiers(tenant);
        let (_, receipt) = story.play(T0, vec![hits(&pro, 600), hits(&other, 100)]);
        let receipt = receipt.expect("a receipt");
        for call in order {
            let settles = call.iter().map(|tier| match tier {
                0 => settle(&pro, &receipt, 400),
                _ => settle(&other, &receipt, 500),
            });
            let (decision, _) = story.play(T0, settles.collect());
            for (charge, tier) in call.iter().enumerate() {
                let expected = [SettleResult::Returned, SettleResult::Charged][*tier];
                let result = decision.settle(charge).map(|settle| settle.result);
                assert_eq!(result, Some(expected), "{tenant}: {tier}");
            }
        }
        let refunds = tiers(tenant).map(|tier| Descriptor { is_refund: true, ..hits(&tier, 0) });
        let (decision, _) = story.play(T0, refunds.to_vec());
        let left: Vec<_> = decision.limit_results().map(|result| result.outcome.report.remaining).collect();
        assert_eq!(left, [2_000 - 400, 1_000 - 500], "{tenant}");
    }
}

/// A recorded call that takes and settles is decided as the service decides it: the settles first.
pub(crate) fn check_recorded_calls(store: &mut impl ReplayStore) {
    let rules = rules::rules(RULES);
    let mut answer = |descriptors: &[Value]| -> Value {
        let line = json!({"t_us": T0, "domain": "d", "descriptors": descriptors}).to_string();
        let mut answers = Vec::new();
        replay(&rules, store, (line.as_bytes(), &mut answers), |_| {}).expect("a request");
        serde_json::from_slice(&answers).expect("JSON")
    };
    for kernel in KERNELS {
        let entry = json!({"key": kernel, "value": "recorded"});
        let take = |units: u64| json!({"entries": [entry], "hits_addend": units});
        let receipt = answer(&[take(8)])["receipt"].clone();
        assert!(receipt.is_string(), "{kernel}: {receipt}");
        let receipt = json!({"key": "ratelimitd_receipt", "value": receipt});
        let settle = json!({"entries": [entry, receipt], "hits_addend": 1});
        let answer = answer(&[take(5), settle]);
        let left = [0, 1].map(|index| answer["statuses"][index]["limit_remaining"].as_u64());
        assert_eq!((answer["overall_code"].as_str(), left), (Some("OK"), [Some(4), Some(9)]), "{kernel}");
    }
}

#[test]
fn memory_adds_up_the_takes_of_one_call() {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    check_one_call(|charges, now_us| store.decide_at(charges, now_us));
    check_recorded_calls(&mut MemoryReplay::new());
}
