//! A block reports its end as the wait.

use proptest::prelude::*;

use super::*;
use crate::limit::algorithm::{Attempt, CounterReading, Kernel, RetryAfter, Verdict};
use crate::{CounterSnapshot, DecidedBy, Decision, Enforcement, Outcome, Outcomes};

const SECOND: u64 = 1_000_000;
/// 13 s into a minute.
const NOW: u64 = 1_800_000_013 * SECOND;

fn blocked_until(key: &str, value: &str, until_us: u64) -> ExceptionRow {
    ExceptionRow { until_us: Some(until_us), ..row(key, value, block()) }
}

fn from(row: ExceptionRow, from_us: u64) -> ExceptionRow {
    ExceptionRow { from_us: Some(from_us), ..row }
}

fn exempt_until(key: &str, value: &str, until_us: u64) -> ExceptionRow {
    ExceptionRow { until_us: Some(until_us), ..row(key, value, exempt()) }
}

/// Decides a request on unused counters.
fn decided(rules: &RuleSet, request: &Request, now_us: u64) -> Decision {
    let plan = Plan::new(rules, request, now_us).expect("a plan");
    let outcome = |kernel: Kernel, cost| {
        let attempt = Attempt { now_us, cost };
        let (verdict, reading) = (kernel.verdict(None, attempt), kernel.reading(None, attempt));
        let report = kernel.report(&reading, attempt, verdict);
        let decided_by = DecidedBy::Store(CounterSnapshot { now_us, reading });
        Outcome { verdict, report, decided_by }
    };
    let outcomes: Outcomes =
        plan.charges.values().map(|charge| outcome(charge.kernel, charge.cost)).collect();
    Decision::merge(plan, outcomes, Enforcement::Enforce)
}

/// The wait of the request, and what the status of its first descriptor says: until the reset, and until the next unit.
fn waits(rules: &RuleSet, descriptors: &[Pairs<'_>], now_us: u64) -> (RetryAfter, u64, u64) {
    let request = request(descriptors.iter().map(|pairs| descriptor(pairs)).collect());
    let decision = decided(rules, &request, now_us);
    let first = decision.limit_results().next().expect("a limit");
    assert_eq!(first.outcome.verdict, Verdict::Over);
    let report = first.outcome.report;
    (decision.retry_after(), report.until_reset_us, report.next_after_us)
}

#[test]
fn the_end_of_the_row_is_the_wait() {
    let hours = 2 * 3_600 * SECOND;
    let in_two_hours = with(&rules(), [blocked_until("tenant", "evil", NOW + hours)]);
    let evil: Pairs<'_> = &[("tenant", "evil")];
    assert_eq!(waits(&in_two_hours, &[evil], NOW), (RetryAfter::In(hours), hours, hours));
    let last = NOW + hours - 1;
    assert_eq!(waits(&in_two_hours, &[evil], last), (RetryAfter::In(1), 1, 1));
    // A rule is not needed.
    let unknown: Pairs<'_> = &[("unknown", "x"), ("tenant", "evil")];
    assert_eq!(waits(&in_two_hours, &[unknown], NOW), (RetryAfter::In(hours), hours, hours));
    // At its end the limit of the rule is back, unused.
    let plan = Plan::new(&in_two_hours, &request(vec![descriptor(evil)]), NOW + hours).expect("a plan");
    assert!(!plan.charges.is_certainly_denied());
    let without_end = with(&rules(), [row("tenant", "evil", block())]);
    assert_eq!(waits(&without_end, &[evil], NOW), (RetryAfter::Never, 47 * SECOND, 0));
}

#[test]
fn of_several_rows_the_last_end_counts() {
    let (one, two, three) = (NOW + SECOND, NOW + 2 * SECOND, NOW + 3 * SECOND);
    let until = |value: &str, end| blocked_until("ip", value, end);
    let table = [
        (vec![until("10.0.0.7", one), until("10.0.0.7", two)], Some(2)),
        (vec![until("10.0.0.7", two), until("10.0.0.7", one)], Some(2)),
        (vec![until("10.0.0.7", one), row("ip", "10.0.0.7", block())], None),
        // The network still blocks after the exception of the address has ended.
        (vec![until("10.0.0.7", one), until("10.0.0.0/8", two)], Some(2)),
        (vec![until("10.0.0.7", one), row("ip", "10.0.0.0/8", block())], None),
        // An exempt address in a blocked network: nothing blocks after the first exception.
        (
            vec![
                until("10.0.0.7", one),
                row("ip", "10.0.0.0/16", exempt()),
                row("ip", "10.0.0.0/8", block()),
            ],
            Some(1),
        ),
        (
            vec![until("10.0.0.7", two), exempt_until("ip", "10.0.0.0/16", one), until("10.0.0.0/8", three)],
            Some(3),
        ),
        // If a block starts when another ends, it continues it. If it starts a microsecond later, it does not.
        (vec![until("10.0.0.7", one), from(until("10.0.0.7", three), one)], Some(3)),
        (vec![until("10.0.0.7", one), from(until("10.0.0.7", three), one + 1)], Some(1)),
        (vec![until("10.0.0.7", one), from(row("ip", "10.0.0.0/8", block()), one)], None),
        (vec![until("10.0.0.7", two), from(until("10.0.0.7", three), one)], Some(3)),
        // An address is exempt before its network's block ends.
        (vec![until("10.0.0.0/8", two), from(row("ip", "10.0.0.7", exempt()), one)], Some(1)),
        (vec![until("10.0.0.7", two), from(row("ip", "10.0.0.0/8", exempt()), one)], Some(2)),
        // It is blocked again when that ends, but a caller can come back in between.
        (vec![row("ip", "10.0.0.0/8", block()), from(exempt_until("ip", "10.0.0.7", two), one)], Some(1)),
        // If the start is later than the end, the row is never active.
        (vec![until("10.0.0.7", one), from(until("10.0.0.7", one), two)], Some(1)),
    ];
    for (rows, seconds) in table {
        let rules = with(&rules(), rows.clone());
        let (wait, until_reset_us, _) = waits(&rules, &[&[("ip", "10.0.0.7")]], NOW);
        assert_eq!(wait.us(), seconds.map(|seconds| seconds * SECOND), "{rows:?}");
        assert_eq!(until_reset_us, seconds.unwrap_or(47) * SECOND, "{rows:?}");
        let plan = Plan::new(&rules, &request(vec![descriptor(&[("ip", "10.0.0.7")])]), NOW).expect("a plan");
        let until_us = seconds.map(|seconds| NOW + seconds * SECOND);
        assert_eq!(plan.derivations()[0].steps[0].change, Change::Blocked { until_us }, "{rows:?}");
    }
}

#[test]
fn thousands_of_rows_for_one_value_have_the_last_end() {
    const ROWS: u64 = 4_000;
    // The winning exception ends first, so each one in turn is the next to block.
    let rows = (0..ROWS).map(|index| blocked_until("ip", "10.0.0.7", NOW + (ROWS - index) * SECOND));
    let rules = with(&rules(), rows.collect::<Vec<_>>());
    assert_eq!(waits(&rules, &[&[("ip", "10.0.0.7")]], NOW).0, RetryAfter::In(ROWS * SECOND));
}

#[test]
fn of_several_limits_that_deny_the_longest_wait_counts() {
    let rules = with(
        &rules(),
        [
            blocked_until("tenant", "a", NOW + 90 * SECOND),
            blocked_until("tenant", "b", NOW + 30 * SECOND),
            row("tenant", "forever", block()),
        ],
    );
    let [a, b]: [Pairs<'_>; 2] = [&[("tenant", "a")], &[("tenant", "b")]];
    assert_eq!(waits(&rules, &[a, b], NOW).0, RetryAfter::In(90 * SECOND));
    assert_eq!(waits(&rules, &[b, a], NOW).0, RetryAfter::In(90 * SECOND));
    assert_eq!(waits(&rules, &[b, a, &[("tenant", "forever")]], NOW).0, RetryAfter::Never);
    // The tier is not in the key, so both descriptors would have one counter.
    let by_tier = with(
        &self::rules(),
        [blocked_until("tier", "x", NOW + 90 * SECOND), blocked_until("tier", "y", NOW + 30 * SECOND)],
    );
    let [x, y]: [Pairs<'_>; 2] = [&[("tenant", "a"), ("tier", "x")], &[("tenant", "a"), ("tier", "y")]];
    assert_eq!(waits(&by_tier, &[x, y], NOW).0, RetryAfter::In(90 * SECOND));
    assert_eq!(waits(&by_tier, &[y, x], NOW).0, RetryAfter::In(90 * SECOND));
    let one_without_end =
        with(&self::rules(), [blocked_until("tier", "x", NOW + 90 * SECOND), row("tier", "y", block())]);
    assert_eq!(waits(&one_without_end, &[x, y], NOW).0, RetryAfter::Never);
    assert_eq!(waits(&one_without_end, &[y, x], NOW).0, RetryAfter::Never);
    assert_eq!(waits(&one_without_end, &[x, x], NOW).0, RetryAfter::In(90 * SECOND));
}

#[test]
fn a_block_ends_in_microseconds_in_a_calendar_too_and_a_late_store_waits() {
    let kernel =
        |until_us| Kernel::Blocked(crate::limit::algorithm::Blocked::new(60 * SECOND).until(until_us));
    let take = Attempt { now_us: NOW, cost: crate::Cost::take(1) };
    let report = |until_us, cost, verdict| {
        kernel(until_us).report(&CounterReading::Nothing, Attempt { cost, ..take }, verdict)
    };
    let over = report(Some(NOW + 1_500_001), take.cost, Verdict::Over);
    assert_eq!((over.retry_after, over.until_reset_us), (RetryAfter::In(1_500_001), 1_500_001));
    // The clock of a store may be ahead of the clock of the process that has planned the request.
    let late = report(Some(NOW - 5), take.cost, Verdict::Over);
    assert_eq!((late.retry_after, late.until_reset_us), (RetryAfter::In(1), 1));
    let refund = report(Some(NOW + 9), crate::Cost::refund(1), Verdict::Fits);
    assert_eq!(refund.retry_after, RetryAfter::Now);
    assert_ne!(kernel(Some(NOW)).to_string(), kernel(None).to_string());
    assert_eq!(kernel(Some(NOW)).fingerprint(), kernel(None).fingerprint());
}

/// The only change of the limit for an address.
fn change_at(rules: &RuleSet, now_us: u64) -> Option<Change> {
    let plan = Plan::new(rules, &request(vec![descriptor(&[("ip", "10.0.0.7")])]), now_us).expect("a plan");
    plan.derivations().first().map(|derivation| derivation.steps[0].change.clone())
}

proptest! {
    #[test]
    fn a_block_ends_at_the_first_time_at_which_nothing_blocks(
        rows in proptest::collection::vec(
            (
                proptest::sample::select(&["10.0.0.7", "10.0.0.0/16", "10.0.0.0/8"][..]),
                proptest::bool::weighted(0.7),
                proptest::option::of(0..10_u64),
                proptest::option::weighted(0.8, 0..12_u64),
            ),
            1..8,
        ),
        now_us in 0..4_u64,
    ) {
        let row = |(value, blocks, from_us, until_us)| ExceptionRow {
            from_us,
            until_us,
            ..row("ip", value, if blocks { block() } else { exempt() })
        };
        let rules = with(&rules(), rows.into_iter().map(row));
        if let Some(Change::Blocked { until_us }) = change_at(&rules, now_us) {
            let is_blocked = |at_us: &u64| matches!(change_at(&rules, *at_us), Some(Change::Blocked { .. }));
            prop_assert_eq!(until_us, (now_us..13).find(|at_us| !is_blocked(at_us)));
        }
    }
}
