//! Laws of a counter whose limit gets other numbers: windows keep the used units, GCRA keeps the used share.

use proptest::prelude::*;

use super::testing::{Counter, any_charging, counter_with_past, large_kernel, small_kernel};
use super::{CalendarWindow, FixedWindow, Gcra, Kernel, SlidingLog, SlidingWindow};
use crate::{Charging, Cost, LONGEST_REFILL_US, Pacing, Verdict};

/// The kernel with another limit, and a burst of the same number; `None` if its counter would be another one.
fn with_limit(kernel: &Kernel, limit: u64) -> Option<Kernel> {
    match kernel {
        Kernel::FixedWindow(k) => Some(Kernel::FixedWindow(FixedWindow::new(limit, k.window_us()))),
        Kernel::CalendarWindow(k) => Some(Kernel::CalendarWindow(CalendarWindow::new(limit, k.boundaries()))),
        Kernel::SlidingWindow(k) => Some(Kernel::SlidingWindow(SlidingWindow::new(limit, k.window_us()))),
        Kernel::SlidingLog(k) => Some(Kernel::SlidingLog(SlidingLog::new(limit, k.window_us()))),
        Kernel::Gcra(k) => Some(Kernel::Gcra(Gcra::new(limit, k.period_us(), limit, Pacing::Meter))),
        Kernel::IntervalBucket(_) | Kernel::Blocked(_) => None,
    }
}

fn any_numbers() -> impl Strategy<Value = Kernel> {
    prop_oneof![3 => small_kernel(), 1 => large_kernel()]
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
        prop_assume!(before.period_us() <= LONGEST_REFILL_US);
        let until_unused = counter.peek(now).reset_after_us;
        for limit in limits {
            let kernel = with_limit(&counter.kernel, limit).expect("a bucket");
            let changed = Counter { kernel, ..counter.clone() };
            let report = changed.peek(now);
            // The instant at which the counter is unused moves by less than a microsecond.
            prop_assert!(report.reset_after_us.abs_diff(until_unused) <= 1);
            // A full burst of the new number drains in one period.
            let free = u128::from(before.period_us().saturating_sub(report.reset_after_us)) * u128::from(limit);
            let share = u64::try_from(free / u128::from(before.period_us())).expect("at most the limit");
            let in_a_microsecond = limit.div_ceil(before.period_us());
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
}
