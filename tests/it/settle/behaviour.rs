//! What a settle books, in cases beside the known answers: several limits, missing, doubled, foreign and hostile
//! receipts, and the roles of limits. The counters are in memory.

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{
    Applied, Bounds, Charges, Code, Decision, Entry, Outcomes, RawDescriptor, RawRequest, Settle,
    SettleResult,
};

use super::{Story, T0, hits, settle};

const RULES: &str = "
domain: d
descriptors:
  - key: tenant
    rate_limits:
      - { name: minute, unit: minute, requests_per_unit: 1000, algorithm: fixed_window, settle: true }
      - { name: day, unit: day, requests_per_unit: 5000, algorithm: gcra, settle: true }
      - { name: calls, unit: minute, requests_per_unit: 3000, algorithm: fixed_window }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 100, algorithm: fixed_window, settle: true }
  - key: postpaid
    rate_limit: { unit: minute, requests_per_unit: 100, settle: true }
  - key: quota
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 100, algorithm: fixed_window, settle: true }
  - key: plain
    rate_limit: { unit: minute, requests_per_unit: 100, algorithm: fixed_window }
";

fn story() -> Story<impl FnMut(&Charges, u64) -> Outcomes> {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    Story::new(RULES, move |charges, now_us| store.decide_at(charges, now_us))
}

/// The units that remain, by limit in the order of the rule.
fn remaining(decision: &Decision) -> Vec<u64> {
    decision.limit_results().map(|result| result.outcome.report.remaining).collect()
}

fn settles(decision: &Decision) -> Vec<&Settle> {
    (0..8).filter_map(|index| decision.settle(index)).collect()
}

fn results(decision: &Decision) -> Vec<SettleResult> {
    settles(decision).iter().map(|settle| settle.result).collect()
}

#[test]
fn each_limit_with_settle_is_settled_and_the_others_keep_the_estimate() {
    let mut story = story();
    let (decision, receipt) = story.play(T0, vec![hits("tenant=a", 600)]);
    assert_eq!(remaining(&decision), [400, 4_400, 2_400]);
    let receipt = receipt.expect("a receipt");
    assert_eq!(receipt.split('.').count(), 2 + 2, "{receipt}: one item for each limit that settles");
    assert!(receipt.len() <= 2 + 14 + 2 * 35, "{receipt}");
    assert!(!receipt.contains("tenant") && !receipt.contains("minute"), "{receipt}");
    let (settled, no_receipt) = story.play(T0, vec![settle("tenant=a", &receipt, 100)]);
    assert_eq!((settled.overall, remaining(&settled)), (Code::Ok, vec![900, 4_900]));
    assert_eq!(results(&settled), [SettleResult::Returned, SettleResult::Returned]);
    assert_eq!(no_receipt, None, "a settle gives no receipt");
    assert_eq!(remaining(&story.play(T0, vec![hits("tenant=a", 0)]).0), [900, 4_900, 2_400]);
}

#[test]
fn a_real_cost_above_the_estimate_is_booked_in_any_case_and_denies_the_next_request() {
    let mut story = story();
    let (_, receipt) = story.play(T0, vec![hits("tenant=a", 600)]);
    let (settled, _) = story.play(T0, vec![settle("tenant=a", &receipt.expect("a receipt"), 1_500)]);
    assert_eq!((settled.overall, remaining(&settled)), (Code::Ok, vec![0, 3_500]));
    assert_eq!(results(&settled), [SettleResult::Charged, SettleResult::Charged]);
    let numbers: Vec<_> = settles(&settled).iter().map(|settle| (settle.estimated, settle.actual)).collect();
    assert_eq!(numbers, [(Some(600), 1_500), (Some(600), 1_500)]);
    assert_eq!(story.play(T0, vec![hits("tenant=a", 1)]).0.overall, Code::OverLimit);
}

#[test]
fn a_denied_request_has_no_receipt_and_an_admitted_check_has_one_without_items() {
    let mut story = story();
    let (decision, receipt) = story.play(T0, vec![hits("tenant=a", 1_001)]);
    assert_eq!((decision.overall, receipt), (Code::OverLimit, None));
    let (decision, receipt) = story.play(T0, vec![hits("tenant=a", 0)]);
    assert_eq!((decision.overall, receipt.as_deref()), (Code::Ok, Some("1.2")));
    assert_eq!(story.play(T0, vec![hits("plain=a", 1)]).1, None, "no limit settles");
    // Nothing was recorded, so all of the real cost is booked.
    let (settled, _) = story.play(T0, vec![settle("tenant=a", "1.2", 700)]);
    assert_eq!(remaining(&settled), [300, 4_300]);
    assert_eq!(results(&settled), [SettleResult::Charged, SettleResult::Charged]);
}

#[test]
fn the_same_receipt_twice_in_one_call_counts_once_with_the_larger_cost() {
    let mut story = story();
    let (_, receipt) = story.play(T0, vec![hits("tenant=a", 600)]);
    let receipt = receipt.expect("a receipt");
    for costs in [[200, 0], [0, 200]] {
        let both = costs.map(|cost| settle("tenant=a", &receipt, cost)).to_vec();
        let mut twin = story_after(600);
        let (settled, _) = twin.play(T0, both);
        assert_eq!(remaining(&settled), [800, 4_800], "{costs:?}");
        assert_eq!(settles(&settled).len(), 2, "one settle for each limit");
        let codes: Vec<_> = settled.statuses().map(|status| status.code).collect();
        assert_eq!(codes, [Code::Ok, Code::Ok]);
    }
    // Two requests of the same tenant, with different receipts.
    let (_, second) = story.play(T0, vec![hits("tenant=a", 300)]);
    let second = second.expect("a receipt");
    let (settled, _) =
        story.play(T0, vec![settle("tenant=a", &receipt, 100), settle("tenant=a", &second, 100)]);
    assert_eq!(settles(&settled).len(), 4);
    assert_eq!(remaining(&story.play(T0, vec![hits("tenant=a", 0)]).0)[0], 800);
}

/// A story whose tenant has taken an estimate, for which it got the receipt with the nonce 1.
fn story_after(estimate: u64) -> Story<impl FnMut(&Charges, u64) -> Outcomes> {
    let mut story = story();
    story.play(T0, vec![hits("tenant=a", estimate)]);
    story
}

#[test]
fn a_receipt_of_another_counter_or_a_text_that_is_none_books_all_of_the_cost() {
    let mut story = story();
    let (_, receipt) = story.play(T0, vec![hits("tenant=a", 600)]);
    let receipt = receipt.expect("a receipt");
    let (settled, _) = story.play(T0, vec![settle("tenant=b", &receipt, 100)]);
    assert_eq!((remaining(&settled), results(&settled)), (vec![900, 4_900], vec![SettleResult::Charged; 2]));
    for hostile in ["", "garbage", "2.1.1-1-1", &"1".repeat(1 << 20), &format!("1.1{}", ".0-1-1".repeat(300))]
    {
        let (settled, _) = story.play(T0, vec![settle("tenant=c", hostile, 1)]);
        assert_eq!((settled.overall, results(&settled)), (Code::Ok, vec![SettleResult::Unreadable; 2]));
    }
    assert_eq!(remaining(&story.play(T0, vec![hits("tenant=c", 0)]).0), [995, 4_995, 3_000]);
}

#[test]
fn a_forged_receipt_gives_back_no_more_than_the_counter_has() {
    let mut story = story();
    let (_, receipt) = story.play(T0, vec![hits("tenant=a", 600)]);
    let forged = receipt.expect("a receipt").replace("-go-", "-2gosa7pa2gv-");
    let (settled, _) = story.play(T0, vec![settle("tenant=a", &forged, 0)]);
    assert_eq!(remaining(&settled), [1_000, 5_000], "{forged}");
    assert_eq!(story.play(T0, vec![hits("tenant=a", 1_001)]).0.overall, Code::OverLimit);
}

#[test]
fn the_role_of_a_limit_decides_whether_there_is_an_item() {
    // Rule, hits of a first request, hits of the second, whether the second is admitted, whether it has an item.
    let table = [
        ("shadow", 60, 60, true, false), // over its limit: admitted, and not recorded
        ("shadow", 60, 40, true, true),
        ("postpaid", 60, 60, false, false), // recorded, but denied
        ("postpaid", 60, 40, true, true),
        ("quota", 60, 60, false, false),
        ("quota", 60, 40, true, true),
    ];
    for (rule, first, second, is_admitted, has_item) in table {
        let mut story = story();
        let descriptor = format!("{rule}=x");
        story.play(T0, vec![hits(&descriptor, first)]);
        let (decision, receipt) = story.play(T0, vec![hits(&descriptor, second)]);
        assert_eq!(decision.overall == Code::Ok, is_admitted, "{rule} {second}");
        let items = receipt.as_deref().map_or(0, |receipt| receipt.split('.').count() - 2);
        assert_eq!(items == 1, has_item, "{rule} {second}: {receipt:?}");
        assert_eq!(receipt.is_some(), is_admitted, "{rule} {second}");
    }
}

#[test]
fn a_settle_beside_other_descriptors_neither_denies_nor_is_denied() {
    let mut story = story();
    let (_, receipt) = story.play(T0, vec![hits("tenant=a", 600)]);
    let receipt = receipt.expect("a receipt");
    story.play(T0, vec![hits("plain=a", 100)]);
    // The plain limit is used up, so the call is denied; the settle is booked nevertheless.
    let (decision, _) = story.play(T0, vec![hits("plain=a", 1), settle("tenant=a", &receipt, 2_000)]);
    assert_eq!(decision.overall, Code::OverLimit);
    let codes: Vec<_> = decision.statuses().map(|status| status.code).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok]);
    assert_eq!(remaining(&story.play(T0, vec![hits("tenant=a", 0)]).0)[0], 0);
    // The counter of the settle is used up, and the other descriptor is admitted.
    let (decision, _) = story.play(T0, vec![settle("tenant=a", "1.9", 5), hits("plain=b", 1)]);
    assert_eq!(decision.overall, Code::Ok);
    assert_eq!(decision.retry_after().us(), Some(0));
    // A settle of a quota rule is no quota group.
    let (decision, _) = story.play(T0, vec![settle("quota=a", "1.9", 500), hits("quota=b", 101)]);
    assert_eq!(decision.overall, Code::OverLimit);
}

#[test]
fn a_limit_without_settle_ignores_receipts() {
    let mut story = story();
    let (decision, receipt) = story.play(T0, vec![settle("plain=a", "1.1", 50)]);
    assert_eq!((decision.overall, receipt), (Code::Ok, None));
    assert!(decision.statuses().all(|status| matches!(status.applied, Applied::Nothing)));
    assert_eq!(remaining(&story.play(T0, vec![hits("plain=a", 0)]).0), [100]);
}

#[test]
fn only_the_last_entry_of_a_descriptor_is_a_receipt() {
    let bounds = Bounds { max_descriptors: 8, max_entries: 2, max_value_bytes: 16 };
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
    let descriptor = |entries: &[(&str, &str)]| {
        let entries = entries.iter().map(entry).collect();
        let descriptors = vec![RawDescriptor { entries, ..RawDescriptor::default() }];
        let raw = RawRequest { domain: "d".to_owned(), descriptors, hits_addend: 0 };
        raw.validate(&bounds).map(|request| request.descriptors[0].clone())
    };
    let receipt = ("ratelimitd_receipt", "1.z");
    let read = descriptor(&[("a", "b"), ("c", "d"), receipt]).expect("the receipt is no entry");
    assert_eq!((read.entries.len(), read.receipt().is_some_and(|receipt| receipt.is_ok())), (2, true));
    let long = ("ratelimitd_receipt", "1.z.1-1-1.2-2-2.3-3-3");
    assert!(descriptor(&[("a", "b"), long]).is_ok(), "a receipt may be longer than other values");
    let hostile = "1.".repeat(1 << 20);
    let read = descriptor(&[("a", "b"), ("ratelimitd_receipt", &hostile)]).expect("a valid request");
    assert!(read.receipt().is_some_and(|receipt| receipt.is_err()));
    let first = descriptor(&[receipt, ("a", "b")]);
    assert!(first.is_err(), "the key is longer than allowed");
    assert_eq!(descriptor(&[("a", "b")]).expect("valid").receipt(), None);
}
