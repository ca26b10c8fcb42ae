//! Laws that hold for every kernel in every state.

use proptest::prelude::*;

use super::testing::{
    Counter, Move, T0, any_charging, any_kernel, counter_with_past, moves, small_kernel, windows_touched,
};
use crate::limit::algorithm::{
    Attempt, FixedWindow, Gcra, IntervalBucket, Kernel, MAX_TIME_US, SlidingLog, SlidingWindow,
};
use crate::{Algorithm, Charging, Cost, Pacing, RetryAfter, Verdict};

fn prepaid() -> impl Strategy<Value = Charging> {
    Just(Charging::Prepaid)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_peek_changes_nothing((counter, now) in counter_with_past(any_kernel(), any_charging())) {
        let mut asked = counter.clone();
        asked.decide(now, Cost::PEEK);
        prop_assert_eq!(asked.state, counter.state);
    }

    #[test]
    fn what_is_used_and_what_remains_make_up_the_limit((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64) {
        let used = |counter: &Counter| {
            let reading = counter.kernel.reading(counter.state.as_ref(), Attempt { now_us: now, cost: Cost::PEEK });
            (counter.kernel.used(&reading, now), counter.kernel.window_us(&reading))
        };
        let (before, window) = used(&counter);
        let report = counter.peek(now);
        prop_assert_eq!(counter.kernel.max_cost().saturating_sub(before), report.remaining);
        let end_us = now + report.until_reset_us;
        prop_assert!(window.is_none_or(|(start_us, window_end_us)| start_us < window_end_us && window_end_us == end_us));
        let mut asked = counter;
        if asked.take(now, units).0 == Verdict::Fits {
            prop_assert_eq!(used(&asked).0, before + units);
        }
    }

    #[test]
    fn a_kernel_records_a_cost_if_and_only_if_it_has_a_counter(kernel in any_kernel(), units in 1..30_u64) {
        let attempt = Attempt { now_us: T0, cost: Cost::take(units) };
        prop_assert_eq!(kernel.recorded(None, attempt).is_some(), kernel.has_counter());
    }

    #[test]
    fn a_prepaid_denial_changes_nothing((counter, now) in counter_with_past(any_kernel(), prepaid()), units in 1..30_u64) {
        let mut asked = counter.clone();
        if asked.take(now, units).0 == Verdict::Over {
            prop_assert_eq!(asked.state, counter.state);
        }
    }

    #[test]
    fn a_cost_fits_if_and_only_if_so_much_remains((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64) {
        prop_assert_eq!(counter.admits(now, units), units <= counter.peek(now).remaining);
        prop_assert_eq!(counter.admits(now, 1), counter.clone().decide(now, Cost::PEEK).0 == Verdict::Fits);
    }

    #[test]
    fn a_grant_lowers_remaining_by_exactly_its_cost((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64) {
        let before = counter.peek(now).remaining;
        let mut asked = counter;
        let (verdict, report) = asked.take(now, units);
        if verdict == Verdict::Fits {
            prop_assert_eq!(report.remaining, before - units);
        }
        prop_assert_eq!(report.remaining, asked.peek(now).remaining);
    }

    #[test]
    fn a_cost_that_never_fits_is_told_no_shorter_wait_than_one_that_does((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64) {
        let until_reset = |units| counter.clone().take(now, units).1.until_reset_us;
        let largest = counter.kernel.max_cost();
        prop_assume!(largest > 0);
        prop_assert!(until_reset(largest + units) >= until_reset(largest.min(units)));
        prop_assert!(until_reset(largest + units) >= until_reset(largest));
        prop_assert!(until_reset(largest + units) >= 1);
    }

    #[test]
    fn retry_after_is_exact((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64) {
        let mut asked = counter;
        let (verdict, report) = asked.take(now, units);
        match report.retry_after {
            RetryAfter::Now => prop_assert_eq!(verdict, Verdict::Fits),
            RetryAfter::Never => prop_assert!(units > asked.kernel.max_cost()),
            RetryAfter::In(wait) => {
                prop_assert!(wait >= 1 && units <= asked.kernel.max_cost());
                prop_assert!(!asked.admits(now + wait - 1, units), "one microsecond early");
                prop_assert!(asked.admits(now + wait, units), "in time");
            }
        }
    }

    #[test]
    fn wait_for_the_same_cost_is_exact((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64) {
        let mut asked = counter;
        asked.take(now, units);
        match asked.wait_again(now, Cost::take(units)) {
            RetryAfter::Now => prop_assert!(asked.admits(now, units)),
            RetryAfter::Never => prop_assert!(units > asked.kernel.max_cost()),
            RetryAfter::In(wait) => {
                prop_assert!(!asked.admits(now + wait - 1, units), "one microsecond early");
                prop_assert!(asked.admits(now + wait, units), "in time");
            }
        }
    }

    #[test]
    fn readings_predict_the_report_at_a_later_time((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64, pass in 0..90_u64) {
        let kernel = counter.kernel;
        let (before, after) = (now, now + pass);
        let [asked, asks] = [before, after].map(|now_us| Attempt { now_us, cost: Cost::take(units) });
        let reading = kernel.reading(counter.state.as_ref(), asked);
        let verdict = kernel.verdict(counter.state.as_ref(), asks);
        if let Some(later) = kernel.reading_later(&reading, after) {
            let then = kernel.reading(counter.state.as_ref(), asks);
            prop_assert_eq!(kernel.wait(&later, asks) == RetryAfter::Now, verdict == Verdict::Fits);
            prop_assert_eq!(kernel.report(&later, asks, verdict), kernel.report(&then, asks, verdict));
        }
    }

    #[test]
    fn next_after_is_exact((counter, now) in counter_with_past(any_kernel(), any_charging())) {
        let report = counter.peek(now);
        if report.next_after_us == 0 {
            prop_assert_eq!(report.remaining, counter.kernel.max_cost());
        } else {
            prop_assert_eq!(counter.peek(now + report.next_after_us - 1).remaining, report.remaining);
            prop_assert!(counter.peek(now + report.next_after_us).remaining > report.remaining);
        }
    }

    #[test]
    fn the_next_unit_comes_no_later_than_the_retry((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..30_u64) {
        let (_, report) = { counter }.take(now, units);
        if let RetryAfter::In(wait) = report.retry_after {
            prop_assert!(report.next_after_us <= wait);
        }
    }

    #[test]
    fn reset_after_is_exact((counter, now) in counter_with_past(any_kernel(), any_charging()), future in moves(8)) {
        let reset = counter.peek(now).reset_after_us;
        let max_cost = counter.kernel.max_cost();
        if reset > 0 {
            prop_assert!(counter.peek(now + reset - 1).remaining < max_cost, "one microsecond early");
        }
        let mut unused = Counter { state: None, ..counter.clone() };
        let mut used = counter;
        let mut then = now + reset;
        for Move { clock_us, cost } in future {
            then += clock_us.unsigned_abs();
            prop_assert_eq!(used.decide(then, cost), unused.decide(then, cost));
        }
    }

    #[test]
    fn a_counter_equals_an_unused_one_from_the_instant_it_says((counter, now) in counter_with_past(any_kernel(), any_charging())) {
        let unused_from = counter.state.as_ref().map_or(0, |state| counter.kernel.unused_from_us(state));
        let reset = counter.peek(now).reset_after_us;
        if reset > 0 {
            prop_assert_eq!(unused_from, now + reset);
        } else {
            prop_assert!(unused_from <= now || counter.peek(now).remaining == counter.kernel.max_cost());
        }
    }

    #[test]
    fn without_traffic_remaining_never_falls((counter, now) in counter_with_past(any_kernel(), any_charging()), waits in prop::collection::vec(0..30_u64, 1..10)) {
        let (mut then, mut before) = (now, counter.peek(now).remaining);
        for wait in waits {
            then += wait;
            let remaining = counter.peek(then).remaining;
            prop_assert!(remaining >= before);
            before = remaining;
        }
    }

    #[test]
    fn a_refund_at_the_same_instant_is_an_exact_undo((counter, now) in counter_with_past(any_kernel(), prepaid()), units in 1..30_u64) {
        // After a step back of the clock the state holds the later time; from there on an undo is exact.
        let mut asked = counter.clone();
        if asked.take(now, units).0 == Verdict::Fits {
            asked.decide(now, Cost::refund(units));
            for wait in 0..60 {
                prop_assert_eq!(asked.peek(now + wait), counter.peek(now + wait));
            }
        }
    }

    #[test]
    fn a_refund_never_lifts_above_the_limit((counter, now) in counter_with_past(any_kernel(), any_charging()), units in 1..100_u64) {
        let mut asked = counter;
        let (verdict, report) = asked.decide(now, Cost::refund(units));
        prop_assert_eq!(verdict, Verdict::Fits);
        prop_assert!(report.remaining <= asked.kernel.max_cost());
    }

    #[test]
    fn debt_is_at_most_one_further_limit(kernel in small_kernel(), costs in prop::collection::vec(1..100_u64, 1..10)) {
        let mut asked = Counter { charging: Charging::Postpaid, ..Counter::new(kernel) };
        for units in &costs {
            asked.take(T0, *units);
        }
        let max_cost = kernel.max_cost();
        // The debt is at most one further limit, so giving back two limits always clears it. A fixed window counts
        // every unit until it ends.
        let is_window = matches!(kernel, Kernel::FixedWindow(_) | Kernel::CalendarWindow(_));
        let most = if is_window { costs.iter().sum() } else { 2 * max_cost };
        asked.decide(T0, Cost::refund(most));
        prop_assert_eq!(asked.peek(T0).remaining, max_cost);
        if is_window && most >= max_cost {
            let over_by = |units| asked.clone().take(T0, most + units).1.over_by;
            prop_assert_eq!((over_by(0), over_by(1)), (most - max_cost, most + 1 - max_cost));
        }
    }

    #[test]
    fn a_queued_hit_waits_for_what_was_there_before(limit in 1..12_u64, period in 1..40_u64, burst in 1..12_u64, past in moves(10), units in 1..12_u64) {
        let kernel = |pacing| Kernel::Gcra(Gcra::new(limit, period, burst, pacing));
        let (mut queue, mut now) = (Counter::new(kernel(Pacing::Queue)), T0);
        for Move { clock_us, cost } in past {
            now += clock_us.unsigned_abs();
            queue.decide(now, cost);
        }
        let backlog = queue.peek(now).reset_after_us;
        let (verdict, report) = queue.take(now, units);
        prop_assert_eq!(report.delay_us, if verdict == Verdict::Fits { backlog } else { 0 });
    }
}

/// Times and costs of the grants of a kernel while the clock only moves forward.
fn granted(kernel: Kernel, history: &[Move]) -> Vec<(u64, u64)> {
    let (mut counter, mut now, mut grants) = (Counter::new(kernel), T0, Vec::new());
    for step in history {
        now += step.clock_us.unsigned_abs();
        let units = step.cost.units().unsigned_abs();
        if counter.take(now, units).0 == Verdict::Fits {
            grants.push((now, units));
        }
    }
    grants
}

/// For every closed interval between two grants: its ends and the units granted in it.
fn intervals(grants: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    (0..grants.len()).flat_map(move |from| {
        (from..grants.len()).map(move |to| {
            let units = grants[from..=to].iter().map(|(_, units)| units).sum();
            (grants[from].0, grants[to].0, units)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_interval_admits_more_than_its_bound(kernel in small_kernel(), history in moves(60)) {
        for (start, end, units) in intervals(&granted(kernel, &history)) {
            let length = end - start;
            let bound = match kernel {
                Kernel::FixedWindow(k) => k.limit * (end / k.window_us - start / k.window_us + 1),
                Kernel::CalendarWindow(k) => k.limit * windows_touched(&k, start, end),
                Kernel::SlidingLog(k) if length >= k.window_us => continue,
                Kernel::SlidingLog(k) => k.limit,
                Kernel::SlidingWindow(k) => match end / k.window_us - start / k.window_us {
                    0 => k.limit,
                    1 => k.limit + k.limit * (end % k.window_us) / k.window_us,
                    _ => continue,
                },
                Kernel::Gcra(k) => k.burst + length * k.limit / k.period_us,
                Kernel::IntervalBucket(k) => k.capacity + k.refill * length.div_ceil(k.interval_us),
                Kernel::Slots(_) | Kernel::Blocked(_) => 0,
            };
            prop_assert!(units <= bound, "{units} in {length} us, bound {bound}");
        }
    }

    #[test]
    fn the_counter_estimates_the_log_within_its_error(limit in 1..12_u64, window in 1..40_u64, history in moves(40)) {
        // Both record the grants of the counter; the limit of the log is too large to deny any.
        let counter = SlidingWindow::new(limit, window);
        let log = SlidingLog::new(10_000, window);
        let mut state = None;
        let mut exact = Counter::new(Kernel::SlidingLog(log));
        let mut now = T0;
        for step in history {
            now += step.clock_us.unsigned_abs();
            let advanced = counter.advanced_to(state, now);
            let elapsed = now % window;
            let used = exact.kernel.max_cost() - exact.peek(now).remaining;
            // In units of 1/window, so that nothing is rounded. The log's window is half open at its old end, so grants
            // of exactly one window ago count in the estimate only.
            let estimate = i128::from(advanced.current * window + advanced.previous * (window - elapsed));
            let error = estimate - i128::from(used * window);
            prop_assert!(error >= -i128::from(advanced.previous * elapsed));
            prop_assert!(error <= i128::from(advanced.previous * (window - elapsed)));
            let units = step.cost.units().unsigned_abs();
            if counter.fits(advanced, now, units) && units > 0 {
                state = Some(counter.record(advanced, Cost::take(units)));
                exact.take(now, units);
            }
        }
    }

    #[test]
    fn a_log_of_one_is_gcra_without_burst(window in 1..40_u64, history in moves(40)) {
        let mut log = Counter::new(Kernel::SlidingLog(SlidingLog::new(1, window)));
        let mut gcra = Counter::new(Kernel::Gcra(Gcra::new(1, window, 1, Pacing::Meter)));
        let mut now = T0;
        for step in history {
            now += step.clock_us.unsigned_abs();
            let units = step.cost.units().unsigned_abs();
            prop_assert_eq!(log.take(now, units), gcra.take(now, units));
        }
    }

    #[test]
    fn gcra_is_a_token_bucket_with_exact_fractions(limit in 1..12_u64, period in 1..40_u64, burst in 1..12_u64, history in moves(40)) {
        let mut gcra = Counter::new(Kernel::Gcra(Gcra::new(limit, period, burst, Pacing::Meter)));
        // Tokens in units of 1/period: `limit` of them are added per microsecond.
        let (full, mut tokens, mut last, mut now) = (burst * period, burst * period, T0, T0);
        for step in history {
            now += step.clock_us.unsigned_abs();
            tokens = full.min(tokens + (now - last) * limit);
            last = now;
            let price = step.cost.units().unsigned_abs() * period;
            let (verdict, report) = gcra.decide(now, Cost::take(step.cost.units().unsigned_abs()));
            prop_assert_eq!(verdict == Verdict::Fits, price <= tokens && (price > 0 || tokens >= period));
            if verdict == Verdict::Fits {
                tokens -= price;
            }
            prop_assert_eq!(report.remaining, tokens / period);
        }
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_back(kernel in small_kernel(), history in moves(60)) {
        // The bound for the span [lo, hi] is kept, in whatever order the clock shows its times.
        let (mut counter, mut now, mut units, mut lo, mut hi) = (Counter::new(kernel), T0, 0, T0, T0);
        for Move { clock_us, cost } in history {
            now = now.saturating_add_signed(clock_us / 4);
            (lo, hi) = (lo.min(now), hi.max(now));
            let asked = cost.units().unsigned_abs();
            if counter.take(now, asked).0 == Verdict::Fits {
                units += asked;
            }
        }
        let span = hi - lo;
        let bound = match kernel {
            Kernel::FixedWindow(k) => k.limit * (hi / k.window_us - lo / k.window_us + 1),
            Kernel::CalendarWindow(k) => k.limit * windows_touched(&k, lo, hi),
            Kernel::SlidingWindow(k) => k.limit * (hi / k.window_us - lo / k.window_us + 1),
            Kernel::SlidingLog(k) => k.limit * (span / k.window_us + 1),
            Kernel::Gcra(k) => k.burst + span * k.limit / k.period_us,
            Kernel::IntervalBucket(k) => k.capacity + k.refill * span.div_ceil(k.interval_us),
            Kernel::Slots(_) | Kernel::Blocked(_) => 0,
        };
        prop_assert!(units <= bound);
    }
}

#[test]
fn no_number_overflows_at_the_edges() {
    let year = crate::limit::period::MAX_PERIOD_US;
    let most = Algorithm::Gcra.max_limit();
    let [most_fixed, most_sliding] =
        [Algorithm::FixedWindow, Algorithm::SlidingWindow].map(Algorithm::max_limit);
    let kernels = [
        Kernel::FixedWindow(FixedWindow::new(most_fixed, year)),
        Kernel::FixedWindow(FixedWindow::new(most_fixed, 1)),
        Kernel::SlidingWindow(SlidingWindow::new(most_sliding, year)),
        Kernel::SlidingWindow(SlidingWindow::new(most_sliding, 1)),
        Kernel::SlidingLog(SlidingLog::new(10_000, year)),
        Kernel::Gcra(Gcra::new(most, 1_000_000, most, Pacing::Queue)),
        Kernel::Gcra(Gcra::new(most - 1, year, most, Pacing::Meter)),
        Kernel::IntervalBucket(IntervalBucket::new(most, most, year)),
    ];
    for kernel in kernels {
        for charging in [Charging::Prepaid, Charging::Postpaid] {
            let mut counter = Counter { charging, ..Counter::new(kernel) };
            for now_us in [0, T0, MAX_TIME_US, T0] {
                for cost in [
                    Cost::take(u64::MAX),
                    Cost::take(kernel.max_cost()),
                    Cost::take(1),
                    Cost::PEEK,
                    Cost::refund(u64::MAX),
                ] {
                    let (_, report) = counter.decide(now_us, cost);
                    assert!(report.remaining <= kernel.max_cost());
                }
            }
        }
    }
}
