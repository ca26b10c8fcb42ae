//! Laws of a counter whose limit changes: windows keep the used units, GCRA keeps the used share.

use proptest::prelude::*;

use super::settle_laws::{Admitted, Return};
use super::testing::{Counter, T0, any_charging, counter_with_past, large_kernel, small_kernel};
use crate::limit::algorithm::{
    Attempt, CalendarWindow, CounterReading, FixedWindow, Gcra, Kernel, SlidingLog, SlidingWindow,
};
use crate::{Charging, Cost, LONGEST_REFILL_US, Pacing, Verdict};

/// The kernel with another limit, and a burst of the same value; `None` if its counter would be another one.
fn with_limit(kernel: &Kernel, limit: u64) -> Option<Kernel> {
    match kernel {
        Kernel::FixedWindow(k) => Some(Kernel::FixedWindow(FixedWindow::new(limit, k.window_us))),
        Kernel::CalendarWindow(k) => Some(Kernel::CalendarWindow(CalendarWindow::new(limit, k.boundaries()))),
        Kernel::SlidingWindow(k) => Some(Kernel::SlidingWindow(SlidingWindow::new(limit, k.window_us))),
        Kernel::SlidingLog(k) => Some(Kernel::SlidingLog(SlidingLog::new(limit, k.window_us))),
        Kernel::Gcra(k) => Some(Kernel::Gcra(Gcra::new(limit, k.period_us, limit, Pacing::Meter))),
        Kernel::IntervalBucket(_) | Kernel::Slots(_) | Kernel::Blocked(_) => None,
    }
}

fn any_numbers() -> impl Strategy<Value = Kernel> {
    prop_oneof![3 => small_kernel(), 1 => large_kernel()]
}

#[derive(Clone, Copy, Debug)]
enum ReceiptStep {
    Take(u64),
    /// Estimated units, and units of the real cost.
    Estimate(u64, u64),
    /// Settles one of the open estimates.
    Settle(usize),
    /// The limit gets this value.
    Change(u64),
}

/// Steps, each with the time before it.
fn receipt_story() -> impl Strategy<Value = Vec<(u64, ReceiptStep)>> {
    let step = prop_oneof![
        2 => (1..12_u64).prop_map(ReceiptStep::Take),
        4 => (1..12_u64, 0..12_u64).prop_map(|(units, actual)| ReceiptStep::Estimate(units, actual.min(units))),
        4 => any::<usize>().prop_map(ReceiptStep::Settle),
        2 => (1..1_000_u64).prop_map(ReceiptStep::Change),
    ];
    prop::collection::vec((prop_oneof![Just(0), 0..30_u64], step), 1..40)
}

/// Usage in the unit in which the counter keeps it: units, and for GCRA the time until it is unused, in parts of a
/// microsecond. The second number is how many parts are one.
fn used(counter: &Counter, now_us: u64) -> (u128, u128) {
    let attempt = Attempt { now_us, cost: Cost::PEEK };
    let whole = match (counter.kernel, counter.kernel.reading(counter.state.as_ref(), attempt)) {
        (_, CounterReading::Window(state)) => state.count,
        (_, CounterReading::Calendar(state)) => state.count,
        (_, CounterReading::Buckets(state)) => state.current + state.previous,
        (_, CounterReading::Log(log)) => log.used,
        (Kernel::Gcra(k), CounterReading::Tat(tat)) => {
            let parts = u128::from(k.denominator);
            let left_us = tat.whole_us.checked_sub(now_us);
            return (left_us.map_or(0, |us| u128::from(us) * parts + u128::from(tat.fraction)), parts);
        }
        (Kernel::IntervalBucket(k), CounterReading::Tokens(state)) => {
            (k.capacity.cast_signed() - state.tokens).unsigned_abs()
        }
        // A kernel without a counter uses nothing.
        (
            _,
            CounterReading::Nothing
            | CounterReading::Tat(_)
            | CounterReading::Tokens(_)
            | CounterReading::Slots(_),
        ) => 0,
    };
    (u128::from(whole), 1)
}

#[test]
fn gcra_returns_the_share_that_an_estimate_took() {
    let hourly = |limit| Kernel::Gcra(Gcra::new(limit, 3_600_000_000, limit, Pacing::Meter));
    let table = [
        // Limit, estimates, units of each and of its real cost; limit at the settles; final limit: what is left.
        (1_000, (100, 10, 9), 1_000, 1_000, 100),
        (1_000, (100, 10, 9), 100, 1_000, 100),
        (1_000, (100, 10, 9), 100, 100, 10),
        (1_000, (100, 10, 9), 10_000, 1_000, 100),
        (1_000, (2, 500, 250), 10_000, 10_000, 5_000),
        (1_000, (1, 500, 0), 10_000, 10_000, 10_000),
        (7, (7, 1, 0), 3, 7, 7),
        (7, (7, 1, 0), 3, 3, 3),
    ];
    for (limit, (estimates, units, actual), at_settle, afterwards, left) in table {
        let mut counter = Counter::new(hourly(limit));
        let admitted: Vec<Admitted> =
            (0..estimates).filter_map(|_| counter.estimate(T0, units, actual)).collect();
        assert_eq!(admitted.len(), estimates);
        counter.kernel = hourly(at_settle);
        admitted.into_iter().for_each(|admitted| counter.settle(T0, admitted, Return::Receipt));
        counter.kernel = hourly(afterwards);
        // A fraction of another limit moves the instant by less than a microsecond, so one unit may be missing.
        let remaining = counter.peek(T0 + 7).remaining;
        assert_eq!(remaining, left, "{limit}, {at_settle}, {afterwards}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_key_of_a_counter_changes_exactly_if_its_state_would_mean_another_thing(kernel in any_numbers(), limit in 1..1_000_u64) {
        let Some(changed) = with_limit(&kernel, limit) else { return Ok(()) };
        prop_assert_eq!(changed.fingerprint(), kernel.fingerprint());
        prop_assert_eq!(changed.to_string(), format!("{}{}", kernel.fingerprint(), changed.numbers()));
    }

    #[test]
    fn windows_keep_the_used_units((counter, now) in counter_with_past(small_kernel(), any_charging()), limits in prop::collection::vec(1..40_u64, 1..6), units in 1..8_u64) {
        // A limit above all costs shows how many units are used.
        let Some(ample) = with_limit(&counter.kernel, 1_000) else { return Ok(()) };
        if let Kernel::Gcra(_) = ample {
            return Ok(());
        }
        let used = |counter: &Counter| 1_000 - Counter { kernel: ample, ..counter.clone() }.peek(now).remaining;
        let mut changing = counter;
        for limit in limits {
            changing.kernel = with_limit(&changing.kernel, limit).expect("a window");
            let before = used(&changing);
            prop_assert_eq!(changing.peek(now).remaining, limit.saturating_sub(before));
            if changing.take(now, units).0 == Verdict::Fits {
                prop_assert_eq!(used(&changing), before + units);
            } else {
                // A postpaid debt is recorded; no unit that was used before is lost.
                prop_assert!(used(&changing) >= before);
            }
        }
    }

    #[test]
    fn gcra_keeps_the_used_share((counter, now) in counter_with_past(any_numbers(), any_charging()), limits in prop::collection::vec(1..1_000_u64, 1..6)) {
        let Kernel::Gcra(before) = counter.kernel else { return Ok(()) };
        prop_assume!(before.period_us <= LONGEST_REFILL_US);
        let until_unused = counter.peek(now).reset_after_us;
        for limit in limits {
            let kernel = with_limit(&counter.kernel, limit).expect("a bucket");
            let changed = Counter { kernel, ..counter.clone() };
            let report = changed.peek(now);
            // The instant at which the counter is unused moves by less than a microsecond.
            prop_assert!(report.reset_after_us.abs_diff(until_unused) <= 1);
            // A full burst of the new value drains in one period.
            let free = u128::from(before.period_us.saturating_sub(report.reset_after_us)) * u128::from(limit);
            let share = u64::try_from(free / u128::from(before.period_us)).expect("at most the limit");
            let in_a_microsecond = limit.div_ceil(before.period_us);
            prop_assert!(report.remaining.abs_diff(share) <= in_a_microsecond, "{} and {share}", report.remaining);
        }
    }

    #[test]
    fn a_change_there_and_back_is_no_change((counter, now) in counter_with_past(any_numbers(), any_charging()), limit in 1..40_u64, pass in 0..30_u64) {
        let Some(kernel) = with_limit(&counter.kernel, limit) else { return Ok(()) };
        let mut changed = Counter { kernel, ..counter.clone() };
        changed.decide(now, Cost::PEEK);
        changed.kernel = counter.kernel;
        prop_assert_eq!(changed.peek(now + pass), counter.peek(now + pass));
    }

    #[test]
    fn a_lower_limit_lowers_no_counter((counter, now) in counter_with_past(small_kernel(), any_charging()), limit in 1..5_u64, units in 1..30_u64) {
        let Some(kernel) = with_limit(&counter.kernel, limit) else { return Ok(()) };
        let until_unused = |counter: &Counter| counter.peek(now).reset_after_us;
        let mut lowered = Counter { kernel, charging: Charging::Postpaid, ..counter.clone() };
        lowered.take(now, units);
        lowered.kernel = counter.kernel;
        // A fraction of GCRA that is read with another denominator moves the instant by less than a microsecond.
        let moved = u64::from(matches!(kernel, Kernel::Gcra(_)));
        prop_assert!(lowered.peek(now).remaining <= counter.peek(now).remaining + moved);
        prop_assert!(until_unused(&lowered) + moved >= until_unused(&counter));
    }

    #[test]
    fn a_receipt_gives_back_at_most_what_its_estimate_took_whatever_the_numbers_are(kernel in small_kernel(), story in receipt_story()) {
        let (mut counter, mut now_us, mut open) = (Counter::new(kernel), T0, Vec::new());
        for (pass_us, step) in story {
            now_us += pass_us;
            let before = used(&counter, now_us);
            match step {
                ReceiptStep::Take(units) => {
                    counter.take(now_us, units);
                }
                ReceiptStep::Estimate(units, actual) => {
                    if let Some(admitted) = counter.estimate(now_us, units, actual) {
                        let (after, parts) = used(&counter, now_us);
                        open.push((admitted, after - before.0, parts));
                    }
                }
                ReceiptStep::Settle(index) if !open.is_empty() => {
                    let (admitted, took, parts) = open.swap_remove(index % open.len());
                    counter.settle(now_us, admitted, Return::Receipt);
                    let (after, parts_now) = used(&counter, now_us);
                    prop_assert!(after <= before.0);
                    // returned / parts_now <= took / parts * unused / estimated
                    let unused = u128::from(admitted.estimated - admitted.actual);
                    let (share, whole) = (took * unused * parts_now, parts * u128::from(admitted.estimated));
                    let returned = before.0 - after;
                    prop_assert!(returned * whole <= share, "{counter:?}: {returned} of {took}");
                    if now_us == admitted.at_us {
                        let lost = if parts_now * parts == 1 { 0 } else { 2 * parts_now };
                        prop_assert!((returned + lost) * whole >= share, "{counter:?}: {returned} of {took}");
                    }
                }
                ReceiptStep::Settle(_) => {}
                ReceiptStep::Change(limit) => counter.kernel = with_limit(&counter.kernel, limit).unwrap_or(counter.kernel),
            }
        }
    }
}
