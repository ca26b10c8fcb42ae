//! Known answers of whole requests, decided by their kernels on counters in a map.

use std::collections::BTreeMap;

use super::booking::{BookedCharge, Booking, BookingMode};
use super::level::Level;
use super::*;
use crate::limit::algorithm::{CounterReading, LogReading, Report, SlidingLog, State};
use crate::{
    Algorithm, Attached, Caller, Charging, Defaults, Descriptor, DomainSpec, Entry, FailurePolicy, HashKey,
    LimitSpec, NodeSpec, OnOver, Pacing, Period, Request, RuleSet, RuleSpec, Share, Shares, Unit,
    ValueHashing,
};

/// Ten seconds before the end of a minute.
const NOW_US: u64 = 1_700_000_030_000_000;
const TEN_S: RetryAfter = RetryAfter::In(10_000_000);

/// The rules of one domain with their counters, at one instant.
struct Service {
    rules: RuleSet,
    counters: BTreeMap<String, State>,
}

impl Service {
    /// A rule per key, which applies to a descriptor with this key.
    fn new(rules: Vec<(&str, RuleSpec)>) -> Self {
        let node = |(key, rule): (&str, RuleSpec)| NodeSpec {
            key: key.to_owned(),
            rule: Some(rule),
            ..NodeSpec::default()
        };
        let descriptors = rules.into_iter().map(node).collect();
        let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
        let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE);
        Self { rules: rules.expect("valid rules"), counters: BTreeMap::new() }
    }

    /// Decides a request with one descriptor of one entry per key. `hits`: the `hits_addend` of the request.
    fn decide(&mut self, keys: &[&str], hits: u64) -> Decision {
        self.decide_all(keys.iter().map(|key| descriptor(key, hits)).collect())
    }

    /// Decides a request with these descriptors.
    fn decide_all(&mut self, descriptors: Vec<Descriptor>) -> Decision {
        let request =
            Request { domain: "d".to_owned(), hits_addend: 0, descriptors, caller: Caller::default() };
        let plan = Plan::new(&self.rules, &request, NOW_US).expect("a plan");
        let attempt = |charge: &Charge| Attempt { now_us: NOW_US, cost: charge.cost };
        let verdict =
            |(key, charge): (&str, &Charge)| charge.kernel.verdict(self.counters.get(key), attempt(charge));
        let verdicts: Vec<_> = plan.charges.iter().map(verdict).collect();
        let is_denied = plan.charges.is_denied(|index| verdicts[index] == Verdict::Over);
        let mut outcomes = Outcomes::default();
        for ((key, charge), verdict) in plan.charges.iter().zip(verdicts) {
            let (kernel, attempt) = (charge.kernel, attempt(charge));
            if charge.is_recorded(verdict, is_denied) {
                let state = kernel.recorded(self.counters.remove(key), attempt);
                self.counters.extend(state.map(|state| (key.to_owned(), state)));
            }
            let reading = kernel.reading(self.counters.get(key), attempt);
            let report = kernel.report(&reading, attempt, verdict);
            let decided_by = DecidedBy::Store(CounterSnapshot { now_us: NOW_US, reading });
            outcomes.by_charge.push(Outcome { verdict, report, decided_by });
        }
        Decision::merge(plan, outcomes, Enforcement::Enforce)
    }
}

fn descriptor(key: &str, hits: u64) -> Descriptor {
    let entry = Entry { key: key.to_owned(), value: "a".to_owned() };
    Descriptor { entries: vec![entry], hits: Some(hits), ..Descriptor::default() }
}

fn spec(units: u64) -> LimitSpec {
    LimitSpec::new(Algorithm::FixedWindow, units, Period::one(Unit::Minute))
}

fn rule(specs: Vec<LimitSpec>) -> RuleSpec {
    let limits = specs.into_iter().map(|spec| Limit::new(spec).expect("a valid limit")).collect();
    RuleSpec { limits, ..RuleSpec::default() }
}

/// The units of the limits that the statuses report, with the codes of the descriptors.
fn reported(decision: &Decision) -> Vec<(Code, Option<u64>)> {
    let status = |status: Status<'_>| match status.applied {
        Applied::Limited(result) => (status.code, Some(result.limit.spec.requests_per_unit)),
        Applied::Nothing | Applied::Unlimited(_) | Applied::Paused(..) => (status.code, None),
    };
    decision.statuses().map(status).collect()
}

#[test]
fn one_descriptor_over_its_limit_denies_the_request_until_the_window_ends() {
    let mut service = Service::new(vec![("user", rule(vec![spec(1)])), ("path", rule(vec![spec(9)]))]);
    let first = service.decide(&["user", "path", "unknown"], 1);
    assert_eq!((first.overall, first.retry_after()), (Code::Ok, RetryAfter::Now));
    assert_eq!(reported(&first), [(Code::Ok, Some(1)), (Code::Ok, Some(9)), (Code::Ok, None)]);
    let second = service.decide(&["user", "path"], 1);
    assert_eq!((second.overall, second.retry_after()), (Code::OverLimit, TEN_S));
    assert_eq!(reported(&second), [(Code::OverLimit, Some(1)), (Code::Ok, Some(9))]);
    let within: Vec<_> = second.rules_within_limit().collect();
    assert_eq!(within.len(), 1, "{within:?}");
    assert_eq!(second.limit_results().count(), 2);
    assert_eq!([first.overall, second.overall].map(|code| code.into_str()), ["OK", "OVER_LIMIT"]);
}

#[test]
fn a_status_reports_the_limit_that_decides() {
    let shares = |limits: Vec<LimitSpec>, hits| {
        let mut service = Service::new(vec![("user", rule(limits))]);
        reported(&service.decide(&["user"], hits))[0]
    };
    let per_hour = |units| LimitSpec { period: Period::one(Unit::Hour), ..spec(units) };
    // The smallest share left; of equal shares, the first.
    assert_eq!(shares(vec![spec(10), spec(5)], 1), (Code::Ok, Some(5)));
    assert_eq!(shares(vec![spec(5), spec(10)], 1), (Code::Ok, Some(5)));
    assert_eq!(shares(vec![spec(5), spec(4)], 2), (Code::Ok, Some(4)));
    let mut service = Service::new(vec![("user", rule(vec![spec(2), per_hour(2)]))]);
    let decision = service.decide(&["user"], 2);
    let Applied::Limited(first) = decision.statuses().next().expect("a status").applied else {
        panic!("a limit that counts")
    };
    assert_eq!(first.limit.spec.period, Period::one(Unit::Minute));
    // A limit that is over comes before one that is within.
    assert_eq!(shares(vec![spec(10), spec(5)], 6), (Code::OverLimit, Some(5)));
    assert_eq!(shares(vec![spec(5), spec(10)], 6), (Code::OverLimit, Some(5)));
    // Neither limit can ever admit so many: the first decides.
    assert_eq!(shares(vec![spec(5), spec(4)], 6), (Code::OverLimit, Some(5)));
}

#[test]
fn of_two_limits_that_are_over_the_longer_wait_is_reported() {
    let per_hour = LimitSpec { period: Period::one(Unit::Hour), ..spec(3) };
    for limits in [vec![spec(2), per_hour.clone()], vec![per_hour, spec(2)]] {
        let mut service = Service::new(vec![("user", rule(limits))]);
        assert_eq!(service.decide(&["user"], 2).retry_after(), RetryAfter::Now);
        let denied = service.decide(&["user"], 2);
        assert_eq!(reported(&denied), [(Code::OverLimit, Some(3))]);
        assert_eq!(denied.retry_after(), RetryAfter::In(2_770_000_000));
    }
}

#[test]
fn a_shadow_rule_is_reported_and_denies_nothing() {
    let shadow = RuleSpec { shadow: true, ..rule(vec![spec(1)]) };
    let mut service = Service::new(vec![("user", shadow)]);
    let decision = service.decide(&["user"], 5);
    assert_eq!((decision.overall, decision.shadowed), (Code::Ok, false));
    assert_eq!(reported(&decision), [(Code::Ok, Some(1))]);
    let (_, result) = decision.charges().next().expect("a charge");
    assert!(result.never_denies() && result.outcome.verdict == Verdict::Over);
    assert_eq!(result.announced(), None);
    assert!(!decision.tells_caller() && !decision.has_announced_limits() && !result.is_quota());
}

#[test]
fn a_limit_that_announces_is_reported_only_if_no_other_can_deny() {
    let announces = LimitSpec { on_over: OnOver::Announce, ..spec(2) };
    let mut service = Service::new(vec![("user", rule(vec![announces, spec(9)]))]);
    let decision = service.decide(&["user"], 3);
    assert_eq!(decision.overall, Code::Ok);
    assert_eq!(reported(&decision), [(Code::Ok, Some(9))]);
    assert!(decision.tells_caller() && decision.has_announced_limits());
    let announced: Vec<_> = decision.charges().map(|(_, result)| result.announced()).collect();
    assert_eq!(announced, [Some(Announced::Over), None]);
}

#[test]
fn a_limit_is_near_when_more_than_its_share_is_used() {
    let near = LimitSpec { near: Share::parse("0.8"), ..spec(10) };
    let mut service = Service::new(vec![("user", rule(vec![near]))]);
    let mut announced = |hits| {
        let decision = service.decide(&["user"], hits);
        let (_, result) = decision.charges().next().expect("a charge");
        result.announced()
    };
    assert_eq!(announced(8), None);
    assert_eq!(announced(1), Some(Announced::Near));
    assert_eq!(announced(2), None, "the status tells of a limit that denies");
}

#[test]
fn nothing_is_told_of_a_shadow_limit_that_is_near() {
    let near = LimitSpec { near: Share::parse("0.8"), ..spec(10) };
    let shadow = RuleSpec { shadow: true, ..rule(vec![near]) };
    let decision = Service::new(vec![("user", shadow)]).decide(&["user"], 9);
    let (_, result) = decision.charges().next().expect("a charge");
    assert_eq!(result.announced(), None);
}

/// One unit per 12 seconds. The request records 3 units although it is denied, and its check needs one more than they
/// take: 8 units are used, and 4 of 5 are to be free.
#[test]
fn a_check_after_a_hit_waits_until_both_fit() {
    let bucket = LimitSpec::new(Algorithm::Gcra, 5, Period::one(Unit::Minute));
    let bucket = LimitSpec { charging: Charging::Postpaid, ..bucket };
    let mut service = Service::new(vec![("user", rule(vec![bucket]))]);
    assert_eq!(service.decide(&["user"], 5).overall, Code::Ok);
    let denied = service.decide_all(vec![descriptor("user", 3), descriptor("user", 0)]);
    assert_eq!(denied.retry_after(), RetryAfter::In(7 * 12_000_000));
}

#[test]
fn an_admitted_request_has_a_receipt_for_each_limit_with_settle() {
    let settles = LimitSpec { settle: true, ..spec(5) };
    let mut service =
        Service::new(vec![("user", rule(vec![settles, spec(9)])), ("path", rule(vec![spec(9)]))]);
    let receipt = |decision: &Decision| decision.receipt(|| 7).map(|receipt| receipt.to_string());
    let admitted = service.decide(&["user"], 3);
    assert!(admitted.tells_caller());
    let one = receipt(&admitted).expect("a receipt");
    let other = receipt(&service.decide(&["user"], 2)).expect("a receipt");
    assert_ne!(one, other, "the units are part of it");
    assert_eq!(receipt(&service.decide(&["user"], 1)), None, "a denied request owes nothing");
    assert_eq!(receipt(&service.decide(&["path"], 1)), None);
    // A hold settles each limit. In shadow mode nothing is recorded for a denied request.
    let items = |decision: &Decision, receipt: Receipt| {
        let items =
            decision.charges().map(|(charged, _)| receipt.item(decision.charged_counter(charged.index).0));
        items.map(|item| item.map(|item| item.units)).collect::<Vec<_>>()
    };
    let in_receipt = |decision: &Decision| {
        let grants = decision.charges().map(|(charged, _)| decision.grant_in_receipt(&charged).is_some());
        grants.collect::<Vec<_>>()
    };
    assert_eq!(items(&admitted, admitted.receipt_of_hold(|| 7).expect("a receipt")), [Some(3), Some(3)]);
    assert_eq!(items(&admitted, admitted.receipt(|| 7).expect("a receipt")), [Some(3), None]);
    assert_eq!(in_receipt(&admitted), [true, false]);
    let denied = Service { counters: BTreeMap::new(), ..service }
        .decide_all(vec![descriptor("user", 3), descriptor("path", 10)]);
    assert_eq!(in_receipt(&denied), [false; 3]);
    let shadowed = Decision::merge(denied.plan, denied.outcomes, Enforcement::Shadow);
    assert_eq!(items(&shadowed, shadowed.receipt(|| 7).expect("a receipt")), [None; 3]);
}

#[test]
fn a_settle_books_the_difference_and_gives_no_receipt() {
    let settles = LimitSpec { settle: true, ..spec(9) };
    let mut service =
        Service::new(vec![("user", rule(vec![settles.clone()])), ("path", rule(vec![settles]))]);
    let receipt = service.decide(&["user"], 3).receipt(|| 7).expect("a receipt");
    let settle = |actual| {
        let attached = Some(Box::new(Attached::Receipt(Ok(receipt.clone()))));
        Descriptor { attached, ..descriptor("user", actual) }
    };
    let decision = service.decide_all(vec![settle(5), descriptor("path", 1)]);
    let settled = decision.settle(0).expect("a settle");
    assert_eq!((settled.estimated, settled.actual, settled.result), (Some(3), 5, SettleResult::Charged));
    let new = decision.receipt(|| 8).expect("a receipt");
    let items = decision.charges().map(|(charged, _)| new.item(decision.charged_counter(charged.index).0));
    assert_eq!(items.map(|item| item.map(|item| item.units)).collect::<Vec<_>>(), [None, Some(1)]);
    let decision = service.decide_all(vec![settle(1)]);
    assert_eq!(decision.settle(0).map(|settle| settle.result), Some(SettleResult::Returned));
}

#[test]
fn a_request_that_no_quota_has_room_for_waits_for_the_first() {
    let per_hour = LimitSpec { period: Period::one(Unit::Hour), ..spec(1) };
    let quota = |spec| RuleSpec { quota: true, ..rule(vec![spec]) };
    let mut service = Service::new(vec![("user", quota(spec(1))), ("path", quota(per_hour))]);
    assert_eq!(service.decide(&["user", "path"], 1).overall, Code::Ok);
    let denied = service.decide(&["user", "path"], 1);
    assert_eq!((denied.overall, denied.retry_after()), (Code::OverLimit, TEN_S));
    let (_, result) = denied.charges().next().expect("a charge");
    assert!(result.is_quota());
}

#[test]
fn only_a_recorded_hit_waits_in_a_queue() {
    let queue = LimitSpec::new(Algorithm::LeakyBucket, 5, Period::one(Unit::Minute));
    let queue = LimitSpec { pacing: Pacing::Queue, ..queue };
    let mut service = Service::new(vec![("user", rule(vec![queue])), ("path", rule(vec![spec(1)]))]);
    let delays = [&["user"][..], &["user", "path"], &["user", "path"]].map(|keys| {
        let decision = service.decide(keys, 1);
        let (_, result) = decision.charges().next().expect("a charge");
        result.outcome.report.delay_us
    });
    assert_eq!(delays, [0, 12_000_000, 0], "the last is denied");
}

#[test]
fn a_slot_that_is_kept_is_no_reason_to_wait() {
    let slots = LimitSpec::new(Algorithm::Concurrency, 1, Period::one(Unit::Hour));
    let mut service = Service::new(vec![("user", rule(vec![slots])), ("path", rule(vec![spec(1)]))]);
    let receipt = service.decide(&["user", "path"], 1).receipt(|| 7).expect("a receipt");
    let attached = Some(Box::new(Attached::Renewal(Ok(receipt))));
    let renewal = Descriptor { attached, ..descriptor("user", 1) };
    assert_eq!(service.decide_all(vec![renewal, descriptor("path", 1)]).retry_after(), TEN_S);
}

#[test]
fn an_undo_that_the_store_refused_returns_nothing() {
    let charge = Charge {
        kernel: Kernel::SlidingLog(SlidingLog::new(9, 60_000_000)),
        cost: Cost::undo(3, Grant { id: NOW_US - 1, limit: None }),
        charging: Charging::Postpaid,
        role: Role::Settle,
        on_store_failure: FailurePolicy::Error,
    };
    let reading = CounterReading::Log(LogReading { used: 5, newest_us: NOW_US, next_us: 0, retry_us: 0 });
    let decided_by = DecidedBy::Store(CounterSnapshot { now_us: NOW_US, reading });
    for (verdict, result) in [(Verdict::Fits, SettleResult::Returned), (Verdict::Over, SettleResult::Kept)] {
        let mut outcome = Outcome { verdict, report: Report::unused(0), decided_by };
        assert_eq!(settle_outcome(&charge, &mut outcome, true), result);
        assert_eq!((outcome.verdict, outcome.report.remaining), (Verdict::Fits, 4));
    }
}

#[test]
fn a_secret_value_is_shown_as_its_hash() {
    let node = NodeSpec { secret: true, ..NodeSpec::default() };
    let node = NodeSpec { key: "token".to_owned(), rule: Some(rule(vec![spec(5)])), ..node };
    let domain = DomainSpec { domain: "d".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
    let hashing = ValueHashing { key: Some(HashKey::new(b"a key for this test")), all_values: false };
    let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, hashing).expect("valid rules");
    let hash = rules.hidden_value("d", &descriptor("token", 1).entries[0]).expect("a secret");
    let decision = Service { rules, counters: BTreeMap::new() }.decide(&["token", "user"], 1);
    assert_eq!((decision.hidden_value(0, 0), decision.hidden_value(1, 0)), (Some(&*hash), None));
}

#[test]
fn a_level_is_told_from_the_smallest_share_on() {
    let notify = Shares::parse(["0.5", "0.9"]).expect("two shares");
    let limits = |units| vec![LimitSpec { notify, ..spec(units) }];
    let level = |service: &mut Service, hits| {
        let decision = service.decide(&["user"], hits);
        let (charged, result) = decision.charges().next().expect("a charge");
        decision.level(&charged, result.outcome)
    };
    let mut service = Service::new(vec![("user", rule(limits(10)))]);
    assert_eq!(level(&mut service, 4), None);
    let window_us = Some((NOW_US - 50_000_000, NOW_US + 10_000_000));
    assert_eq!(level(&mut service, 1), Some(Level { used: 5, of: 10, now_us: NOW_US, window_us }));
    for silent in [RuleSpec { shadow: true, ..rule(limits(10)) }, rule(limits(0)), rule(vec![spec(10)])] {
        assert_eq!(level(&mut Service::new(vec![("user", silent)]), 9), None);
    }
}

fn bookings(decision: &Decision) -> Vec<Booking> {
    decision.charges().map(|(charged, result)| sum(decision.booking(&charged, result.outcome).0)).collect()
}

fn sum(charge: BookedCharge) -> Booking {
    let mut sum = Booking::default();
    sum += charge;
    assert_eq!(charge.total(), sum.total());
    sum
}

/// Limits of 5. A denied request records its postpaid hits, and a limit of 0 records none.
#[test]
fn the_ledger_books_what_was_recorded_apart_from_what_was_refused() {
    let late = |units| rule(vec![LimitSpec { charging: Charging::Postpaid, ..spec(units) }]);
    let mut service = Service::new(vec![("user", rule(vec![spec(5)])), ("late", late(5)), ("none", late(0))]);
    let none = Booking::default();
    let refund = |key| Descriptor { is_refund: true, ..descriptor(key, 2) };
    let admitted = Booking { ok: 1, units: 3, ..none };
    for (descriptors, expected) in [
        (vec![descriptor("user", 3), descriptor("late", 3)], vec![admitted, admitted]),
        (
            vec![descriptor("user", 3), descriptor("late", 1)],
            vec![Booking { over: 1, refused: 3, ..none }, Booking { units: 1, ..none }],
        ),
        (
            vec![descriptor("user", 1), descriptor("late", 7)],
            vec![none, Booking { over: 1, units: 7, ..none }],
        ),
        (vec![descriptor("user", 0), descriptor("late", 0)], vec![none, none]),
        (vec![refund("user"), refund("none")], vec![Booking { back: 2, ..none }, none]),
        (vec![descriptor("none", 4)], vec![Booking { over: 1, refused: 4, ..none }]),
    ] {
        let decision = service.decide_all(descriptors);
        assert_eq!(bookings(&decision), expected, "{:?}", decision.plan.charges);
        let (charged, result) = decision.charges().next().expect("a charge");
        assert_eq!(decision.booking(&charged, result.outcome).1, Some(NOW_US));
    }
}

#[test]
fn the_ledger_books_unknown_units_apart_if_the_store_did_not_decide() {
    let (none, policy) = (Booking::default(), DecidedBy::Policy(FailurePolicy::Allow));
    let late = LimitSpec { charging: Charging::Postpaid, ..spec(5) };
    let mut service = Service::new(vec![("late", rule(vec![late])), ("none", rule(vec![spec(0)]))]);
    let mut admitted = service.decide(&["late"], 3);
    let DecidedBy::Store(known) = admitted.outcomes.by_charge[0].decided_by else {
        panic!("the store decides")
    };
    admitted.outcomes.by_charge[0].decided_by = policy;
    assert_eq!(bookings(&admitted), [Booking { policy: 3, ..none }]);
    let (charged, result) = admitted.charges().next().expect("a charge");
    assert_eq!(admitted.booking(&charged, result.outcome).1, None);
    let failed =
        |decision: &Decision, charge| sum(BookedCharge::of_failure(decision.plan.charges.charge(charge)));
    assert_eq!(failed(&admitted, 0), Booking { unknown: 3, ..none });
    let mut returned = service.decide_all(vec![Descriptor { is_refund: true, ..descriptor("late", 2) }]);
    returned.outcomes.by_charge[0].decided_by = policy;
    assert_eq!(bookings(&returned), [Booking { unknown: 2, ..none }]);
    let mut denied = service.decide(&["late", "none"], 9);
    denied.outcomes.by_charge[0].decided_by = DecidedBy::DenyCache(known);
    assert_eq!(bookings(&denied)[0], Booking { over: 1, refused: 9, ..none }, "it records nothing");
    assert_eq!(failed(&denied, 1), none);
}

/// A check reserves 4. The request of a charge was counted at its check.
#[test]
fn the_ledger_counts_a_request_with_reserve_once() {
    let reserve = LimitSpec { reserve: Some(4), ..spec(9) };
    let mut service = Service::new(vec![("user", rule(vec![reserve]))]);
    let booked = [0, 6, 1, 99].map(|hits| bookings(&service.decide(&["user"], hits))[0]);
    let none = Booking::default();
    let check = Booking { ok: 1, units: 4, ..none };
    let back = Booking { back: 3, ..none };
    assert_eq!(booked, [check, Booking { units: 2, ..none }, back, Booking { units: 95, ..none }]);
}

#[test]
fn the_ledger_books_what_a_settle_did() {
    let settles = |units| rule(vec![LimitSpec { settle: true, ..spec(units) }]);
    let mut service = Service::new(vec![("user", settles(9)), ("none", settles(0))]);
    let receipt = service.decide(&["user"], 3).receipt(|| 7).expect("a receipt");
    let mut settle = |key, actual| {
        let attached = Some(Box::new(Attached::Receipt(Ok(receipt.clone()))));
        let mut decision = service.decide_all(vec![Descriptor { attached, ..descriptor(key, actual) }]);
        let stored = bookings(&decision)[0];
        decision.plan.settles.iter_mut().for_each(|settle| settle.result = SettleResult::Lost);
        (stored, bookings(&decision)[0])
    };
    let none = Booking::default();
    let lost = |units| Booking { unknown: units, ..none };
    assert_eq!(settle("user", 5), (Booking { units: 2, ..none }, lost(2)));
    assert_eq!(settle("user", 1), (Booking { back: 2, ..none }, lost(2)));
    assert_eq!(settle("none", 5), (none, none));
}

#[test]
fn a_booking_is_of_the_mode_of_its_limit_and_sums_saturate() {
    let limit = |spec| Limit::new(spec).expect("a valid limit");
    let soft = limit(LimitSpec { on_over: OnOver::Announce, ..spec(5) });
    let shadow = Limit { shadow: true, ..soft.clone() };
    let blocked = Limit { blocked: true, ..shadow.clone() };
    let modes = [limit(spec(5)), soft, shadow, blocked].map(|limit| BookingMode::of(&limit).into_str());
    assert_eq!(modes, ["", "soft", "shadow", ""]);
    let mut sum = Booking { ok: 1, over: 2, units: 3, back: 4, refused: 5, policy: 6, unknown: 7 };
    assert_eq!(sum.total(), 28);
    sum += Booking { units: u64::MAX, ..sum };
    assert_eq!(
        sum,
        Booking { ok: 2, over: 4, units: u64::MAX, back: 8, refused: 10, policy: 12, unknown: 14 }
    );
    sum += BookedCharge { units: 1, over: true, ..BookedCharge::default() };
    assert_eq!((sum.units, sum.over), (u64::MAX, 5));
}
