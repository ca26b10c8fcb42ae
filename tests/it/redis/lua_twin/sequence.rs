//! Sequences of requests: the counters, the charges and the time steps.

use std::collections::HashMap;

use engine::algorithm::{
    Blocked, CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, MAX_HOLD_US, MAX_TIME_US, SlidingLog,
    SlidingWindow, Slots,
};
use engine::{
    Charge, Charges, Charging, Cost, DecidedBy, FailurePolicy, Grant, LONGEST_REFILL_US, Outcomes, Pacing,
    RetryAfter, Role,
};

/// A random charge to one of the counters of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct RandomCharge {
    pub(crate) counter: usize,
    pub(crate) amount: Amount,
    pub(crate) charging: Charging,
    pub(crate) role: Role,
}

#[derive(Clone, Debug)]
pub(crate) enum Amount {
    Peek,
    /// For a fixed window; else a peek.
    DebtPeek,
    Take(f64),
    Few(u64),
    Saturated,
    Refund(f64),
    Nothing,
    /// A share of the units of the grant of the counter that is this many grants old. If there is none, of a grant that
    /// never was.
    Undo {
        back: usize,
        share: f64,
    },
}

/// How the time changes before a batch.
#[derive(Clone, Debug)]
pub(crate) enum TimeStep {
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
pub(crate) struct Sequence {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) changes: Vec<NumberChange>,
    pub(crate) batches: Vec<(TimeStep, Vec<RandomRequest>)>,
}

/// From this batch on, the limit of this counter has this multiple of its first number.
#[derive(Clone, Debug)]
pub(crate) struct NumberChange {
    pub(crate) batch: usize,
    pub(crate) counter: usize,
    pub(crate) factor: f64,
}

/// A grant of a counter, and its units.
type Granted = (Grant, u64);

/// The grants of each counter, oldest first.
#[derive(Default)]
pub(crate) struct Grants(HashMap<String, Vec<Granted>>);

/// A request, and whether it is known to be denied.
pub(crate) type RandomRequest = (Vec<RandomCharge>, bool);

/// A minute boundary of recent time, so that numbers are as large as in production.
pub(super) const START_US: u64 = 1_700_000_040_000_000;

/// The longest period that a rule can have.
pub(crate) const LONGEST_US: u64 = 366 * 86_400 * 1_000_000;

/// How many kinds [`kernel_of`] has: each kernel, and GCRA twice.
pub(crate) const KINDS: u8 = Kernel::KINDS as u8 + 1;

/// The kernel of a kind below [`KINDS`] with these numbers, within the bounds of the engine.
pub(crate) fn kernel_of(kind: u8, (limit, other, length_us): (u64, u64, u64), pacing: Pacing) -> Kernel {
    let most = u64::from(u32::MAX);
    let (rate, burst) = (limit.clamp(1, most), other.clamp(1, most));
    // A rule cannot have a burst that takes longer than ten years to drain.
    let longest = u128::from(LONGEST_REFILL_US) * u128::from(rate) / u128::from(length_us);
    let burst = burst.min(u64::try_from(longest).unwrap_or(u64::MAX)).max(1);
    match kind {
        0 => Kernel::FixedWindow(FixedWindow::new(limit.clamp(1, 1 << 52), length_us)),
        1 => Kernel::SlidingWindow(SlidingWindow::new(limit.clamp(1, 1 << 46), length_us)),
        2 => Kernel::SlidingLog(SlidingLog::new(rate.min(10_000), length_us)),
        3 | 4 => Kernel::Gcra(Gcra::new(rate, length_us, burst, pacing)),
        5 => {
            let capacity = burst.min(rate.saturating_mul(10).min(u64::from(u32::MAX)));
            Kernel::IntervalBucket(IntervalBucket::new(capacity, rate, length_us))
        }
        6 => Kernel::CalendarWindow(calendar(limit.clamp(1, 1 << 52), other, length_us)),
        7 => Kernel::Slots(Slots::new(limit.clamp(1, 10_000), length_us.min(MAX_HOLD_US))),
        _ => Kernel::Blocked(Blocked::new(length_us)),
    }
}

/// Windows of two lengths around the start of the sequences.
fn calendar(limit: u64, other: u64, length_us: u64) -> CalendarWindow {
    let middle_us = START_US + other % length_us;
    let first_us = middle_us - 1 - other % length_us.div_ceil(2);
    CalendarWindow::new(limit, [first_us, middle_us, middle_us + length_us])
}

/// The kernel with a multiple of its numbers, and so with the same counter. 0 blocks.
pub(crate) fn with_factor(kernel: &Kernel, factor: f64) -> Kernel {
    let scaled = |units: u64| (units as f64 * factor) as u64;
    let of_kind = |kind, limit, burst| {
        kernel_of(kind, (scaled(limit), scaled(burst), period_us(kernel)), Pacing::Meter)
    };
    match kernel {
        _ if factor == 0.0 => Kernel::Blocked(Blocked::new(period_us(kernel))),
        Kernel::FixedWindow(k) => of_kind(0, k.limit, 0),
        Kernel::SlidingWindow(k) => of_kind(1, k.limit, 0),
        Kernel::SlidingLog(k) => of_kind(2, k.limit, 0),
        Kernel::Gcra(k) => of_kind(3, k.limit, k.burst),
        Kernel::Slots(k) => of_kind(7, k.limit, 0),
        Kernel::CalendarWindow(k) => {
            Kernel::CalendarWindow(CalendarWindow::new(scaled(k.limit).clamp(1, 1 << 52), k.boundaries()))
        }
        Kernel::IntervalBucket(_) | Kernel::Blocked(_) => *kernel,
    }
}

pub(crate) fn period_us(kernel: &Kernel) -> u64 {
    match kernel {
        Kernel::FixedWindow(k) => k.window_us,
        Kernel::CalendarWindow(k) => k.boundaries()[2] - k.boundaries()[1],
        Kernel::SlidingWindow(k) => k.window_us,
        Kernel::SlidingLog(k) => k.window_us,
        Kernel::Gcra(k) => k.period_us,
        Kernel::IntervalBucket(k) => k.interval_us,
        Kernel::Slots(k) => k.hold_us,
        Kernel::Blocked(k) => k.window_us,
    }
}

impl Amount {
    /// The cost for slots: takes have a few ids, so that some are open.
    fn slot_cost(&self, grants: &[Granted]) -> Cost {
        let granted = |back: usize| grants.iter().rev().nth(back).map_or(1, |(grant, _)| grant.id);
        match *self {
            Self::Peek | Self::DebtPeek => Cost::PEEK,
            Self::Take(share) => Cost::slot((share * 1e6) as u64),
            Self::Few(units) => Cost::slot(units.wrapping_sub(1) % (1 << 53)),
            Self::Saturated => Cost::renewal(granted(0)),
            Self::Nothing => Cost::refund(0),
            // The slot with the id 0.
            Self::Refund(_) => Cost::refund(1),
            Self::Undo { back, .. } => Cost::undo(1, Grant { id: granted(back), limit: None }),
        }
    }

    /// The cost for a limit of this kernel.
    fn cost(&self, kernel: &Kernel, grants: &[Granted]) -> Cost {
        if let Kernel::Slots(_) = kernel {
            return self.slot_cost(grants);
        }
        let (max_cost, is_window) =
            (kernel.max_cost(), matches!(kernel, Kernel::FixedWindow(_) | Kernel::CalendarWindow(_)));
        let part_of = |share: f64, whole: u64| (share * whole as f64) as u64 + 1;
        let part = |share: f64| part_of(share, max_cost);
        match *self {
            Self::Peek => Cost::PEEK,
            Self::DebtPeek if is_window => Cost::DEBT_PEEK,
            Self::DebtPeek => Cost::PEEK,
            Self::Take(share) => Cost::take(part(share)),
            Self::Few(units) => Cost::take(units),
            Self::Saturated => Cost::take(u64::MAX),
            Self::Refund(share) => Cost::refund(part(share)),
            Self::Nothing => Cost::refund(0),
            Self::Undo { back, share } => {
                const UNKNOWN: Granted = (Grant { id: 0, limit: None }, 1);
                let (grant, units) = grants.iter().rev().nth(back).copied().unwrap_or(UNKNOWN);
                Cost::undo(part_of(share, units), grant)
            }
        }
    }
}

impl RandomCharge {
    /// The charge, for a counter with this kernel and these grants.
    pub(crate) fn charge(&self, kernel: Kernel, grants: &[Granted]) -> Charge {
        Charge {
            kernel,
            cost: self.amount.cost(&kernel, grants),
            charging: self.charging,
            role: self.role,
            on_store_failure: FailurePolicy::default(),
        }
    }
}

impl Sequence {
    /// The kernel of a counter in the batch with this index.
    pub(crate) fn kernel(&self, counter: usize, batch: usize) -> Kernel {
        let is_made = |change: &&NumberChange| change.counter == counter && change.batch <= batch;
        let last = self.changes.iter().filter(is_made).max_by_key(|change| change.batch);
        let kernel = &self.kernels[counter];
        last.map_or(*kernel, |change| with_factor(kernel, change.factor))
    }

    /// The charges of a request in the batch with this index.
    pub(crate) fn charges(
        &self,
        (random_charges, is_denied): &RandomRequest,
        case: u64,
        batch: usize,
        grants: &Grants,
    ) -> Charges {
        let mut charges = Charges::default();
        if *is_denied {
            charges.set_denied();
        }
        for random in random_charges {
            let key = format!("{case}/{}", random.counter);
            let grants = grants.0.get(&key).map_or(&[][..], Vec::as_slice);
            let charge = random.charge(self.kernel(random.counter, batch), grants);
            charges.push(charge, |text| text.push_str(&key));
        }
        charges
    }

    pub(crate) fn time_after(&self, now_us: u64, step: &TimeStep, last: &Outcomes) -> u64 {
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

impl Grants {
    /// Adds what a request has got.
    pub(crate) fn add(&mut self, charges: &Charges, outcomes: &Outcomes) {
        let is_denied = charges.is_denied(|index| outcomes.is_over(index));
        for ((key, charge), outcome) in charges.iter().zip(&outcomes.by_charge) {
            let DecidedBy::Store(snapshot) = outcome.decided_by else { continue };
            let units = charge.cost.taken();
            if units > 0 && charge.is_recorded(outcome.verdict, is_denied) {
                let grant = charge.grant(&snapshot.reading).map(|grant| (grant, units));
                self.0.entry(key.to_owned()).or_default().extend(grant);
            }
        }
    }
}

pub(crate) fn due_us(last: &Outcomes) -> u64 {
    let Some(outcome) = last.by_charge.first() else {
        return 0;
    };
    match outcome.report.retry_after {
        RetryAfter::In(us) => us,
        RetryAfter::Now if outcome.report.remaining % 2 == 0 => outcome.report.reset_after_us,
        RetryAfter::Now | RetryAfter::Never => outcome.report.next_after_us,
    }
}
