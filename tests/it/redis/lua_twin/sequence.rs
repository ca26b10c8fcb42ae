//! Random sequences of requests: the counters, the charges and the time steps.

use proptest::collection::vec;
use proptest::prelude::*;
use ratelimitd::engine::algorithm::{
    Blocked, FixedWindow, Gcra, IntervalBucket, Kernel, MAX_TIME_US, SlidingLog, SlidingWindow,
};
use ratelimitd::engine::{
    Charge, Charges, Charging, Cost, FailurePolicy, LONGEST_REFILL_US, Outcomes, Pacing, RetryAfter, Role,
};

/// A random charge to one of the counters of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct RandomCharge {
    pub(crate) counter: usize,
    amount: Amount,
    charging: Charging,
    role: Role,
}

#[derive(Clone, Debug)]
pub(super) enum Amount {
    Peek,
    Take(f64),
    Few(u64),
    Saturated,
    Refund(f64),
    Nothing,
}

/// How the time changes before a batch.
#[derive(Clone, Debug)]
pub(super) enum TimeStep {
    /// Microseconds.
    Us(u64),
    /// A multiple of the period of the first counter.
    Periods(f64),
    /// To the time at which the counter of the last answer changes, plus this number of microseconds.
    Due(i64),
    /// Back by this number of microseconds.
    Back(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) kernels: Vec<Kernel>,
    pub(super) batches: Vec<(TimeStep, Vec<RandomRequest>)>,
}

/// A request, and whether it is known to be denied.
pub(super) type RandomRequest = (Vec<RandomCharge>, bool);

/// The longest period that a rule can have.
pub(crate) const LONGEST_US: u64 = 366 * 86_400 * 1_000_000;

/// Small limits and periods, so that limits and periods end often. No limit is below `least`.
pub(crate) fn small(least: u64) -> impl Strategy<Value = Kernel> {
    kernel(least..12, 1..=40_u64)
}

/// Limits and periods as in typical rules.
pub(crate) fn everyday(least: u64) -> impl Strategy<Value = Kernel> {
    let unit_s = prop_oneof![Just(1_u64), Just(60), Just(3_600), Just(86_400)];
    kernel(least..100_000, unit_s.prop_map(|seconds| seconds * 1_000_000))
}

/// The largest allowed numbers, and numbers near them.
pub(crate) fn largest() -> impl Strategy<Value = Kernel> {
    let limit = prop_oneof![Just(u64::from(u32::MAX)), 1..=u64::from(u32::MAX), 1..1_000_u64];
    kernel(limit, prop_oneof![Just(LONGEST_US), 1..=LONGEST_US, LONGEST_US - 1_000..=LONGEST_US])
}

/// Kernels with these limits and periods, within the bounds of the engine.
pub(crate) fn kernel(
    limit: impl Strategy<Value = u64> + Clone + 'static,
    length_us: impl Strategy<Value = u64> + Clone + 'static,
) -> impl Strategy<Value = Kernel> {
    let numbers = (limit.clone(), limit, length_us);
    (0..7_u8, numbers, any::<bool>()).prop_map(|(kind, (limit, other, length_us), queue)| {
        let (rate, burst) = (limit.max(1), other.max(1));
        let pacing = if queue { Pacing::Queue } else { Pacing::Meter };
        // A rule cannot have a burst that takes longer than ten years to drain.
        let longest = u128::from(LONGEST_REFILL_US) * u128::from(rate) / u128::from(length_us);
        let burst = burst.min(u64::try_from(longest).unwrap_or(u64::MAX)).max(1);
        match kind {
            0 => Kernel::FixedWindow(FixedWindow::new(rate, length_us)),
            1 => Kernel::SlidingWindow(SlidingWindow::new(rate, length_us)),
            2 => Kernel::SlidingLog(SlidingLog::new(rate.min(10_000), length_us)),
            3 | 4 => Kernel::Gcra(Gcra::new(rate, length_us, burst, pacing)),
            5 => {
                let capacity = burst.min(rate.saturating_mul(10).min(u64::from(u32::MAX)));
                Kernel::IntervalBucket(IntervalBucket::new(capacity, rate, length_us))
            }
            _ => Kernel::Blocked(Blocked::new(length_us)),
        }
    })
}

pub(crate) fn period_us(kernel: &Kernel) -> u64 {
    match kernel {
        Kernel::FixedWindow(k) => k.window_us(),
        Kernel::SlidingWindow(k) => k.window_us(),
        Kernel::SlidingLog(k) => k.window_us(),
        Kernel::Gcra(k) => k.period_us(),
        Kernel::IntervalBucket(k) => k.interval_us(),
        Kernel::Blocked(k) => k.window_us(),
    }
}

pub(super) fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        10 => Just(Amount::Peek),
        5 => (0.0..1.2).prop_map(Amount::Refund),
        5 => (1..4_u64).prop_map(|units| Amount::Refund(units as f64 * 1e-9)),
        2 => Just(Amount::Saturated),
        2 => Just(Amount::Nothing),
        38 => (1..4_u64).prop_map(Amount::Few),
        40 => (0.0..2.1).prop_map(Amount::Take),
    ]
}

impl Amount {
    /// The cost for a limit whose largest cost is `max_cost`.
    fn cost(&self, max_cost: u64) -> Cost {
        let part = |share: f64| (share * max_cost as f64) as u64 + 1;
        match *self {
            Self::Peek => Cost::PEEK,
            Self::Take(share) => Cost::take(part(share)),
            Self::Few(units) => Cost::take(units),
            Self::Saturated => Cost::take(u64::MAX),
            Self::Refund(share) => Cost::refund(part(share)),
            Self::Nothing => Cost::refund(0),
        }
    }
}

pub(crate) fn random_charge(counters: usize) -> impl Strategy<Value = RandomCharge> {
    let charging = prop_oneof![3 => Just(Charging::Prepaid), 1 => Just(Charging::Postpaid)];
    let role = prop_oneof![
        5 => Just(Role::Enforce),
        2 => Just(Role::NonBinding),
        3 => (0..3_u16).prop_map(Role::Quota),
    ];
    (0..counters, amount(), charging, role).prop_map(|(counter, amount, charging, role)| RandomCharge {
        counter,
        amount,
        charging,
        role,
    })
}

pub(super) fn time_step() -> impl Strategy<Value = TimeStep> {
    prop_oneof![
        25 => (0..60_u64).prop_map(TimeStep::Us),
        25 => (0.0..1.3).prop_map(TimeStep::Periods),
        5 => (1.3..4.0).prop_map(TimeStep::Periods),
        35 => (-1..=1_i64).prop_map(TimeStep::Due),
        8 => (1..80_u64).prop_map(TimeStep::Back),
    ]
}

pub(super) fn sequence(kernels: impl Strategy<Value = Kernel>) -> impl Strategy<Value = Sequence> {
    let charges = prop_oneof![3 => vec(random_charge(4), 1), 2 => vec(random_charge(4), 2..5)];
    let request = (charges, prop_oneof![9 => Just(false), 1 => Just(true)]);
    let batch = prop_oneof![3 => vec(request.clone(), 1..3), 1 => vec(request, 3..20)];
    (vec(kernels, 4), vec((time_step(), batch), 1..40))
        .prop_map(|(kernels, batches)| Sequence { kernels, batches })
}

impl RandomCharge {
    /// The charge, for a counter with this kernel.
    pub(crate) fn charge(&self, kernel: Kernel) -> Charge {
        Charge {
            kernel,
            cost: self.amount.cost(kernel.max_cost()),
            charging: self.charging,
            role: self.role,
            on_store_failure: FailurePolicy::default(),
        }
    }
}

impl Sequence {
    pub(super) fn charges(&self, (random_charges, is_denied): &RandomRequest, case: u64) -> Charges {
        let mut charges = Charges::default();
        if *is_denied {
            charges.set_denied();
        }
        for random in random_charges {
            let charge = random.charge(self.kernels[random.counter]);
            charges.push(charge, |key| key.push_str(&format!("{case}/{}", random.counter)));
        }
        charges
    }

    pub(super) fn time_after(&self, now_us: u64, step: &TimeStep, last: &Outcomes) -> u64 {
        let next = match *step {
            TimeStep::Us(us) => now_us + us,
            TimeStep::Periods(periods) => now_us + (periods * period_us(&self.kernels[0]) as f64) as u64,
            TimeStep::Due(offset) => now_us.saturating_add_signed(due_us(last).cast_signed() + offset),
            TimeStep::Back(us) => now_us - us,
        };
        // The time of a replay may stay the same, and must stay in range.
        next.min(MAX_TIME_US)
    }
}

pub(super) fn due_us(last: &Outcomes) -> u64 {
    let Some(outcome) = last.decided().next() else {
        return 0;
    };
    match outcome.report.retry_after {
        RetryAfter::In(us) => us,
        RetryAfter::Now if outcome.report.remaining % 2 == 0 => outcome.report.reset_after_us,
        RetryAfter::Now | RetryAfter::Never => outcome.report.next_after_us,
    }
}
