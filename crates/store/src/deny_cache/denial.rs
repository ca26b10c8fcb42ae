//! What one denial implies for later charges to its counter, and for how long. [`ForgottenDenials`] finds denials that
//! arrived too late to be kept.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::algorithm::{Attempt, CounterReading};
use engine::{Charge, Charging, CounterSnapshot, DecidedBy, Outcome, RetryAfter, Verdict};

#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    pub(super) snapshot: CounterSnapshot,
    /// Units that did not fit.
    pub(super) needed: u64,
    /// [`Kernel::max_cost`](engine::algorithm::Kernel::max_cost) of the limit that denied.
    pub(super) max_cost: u64,
    /// This process's clock before the store was called. `received_us` is its time after the answer.
    pub(super) sent_us: u64,
    pub(super) received_us: u64,
    /// `sent_us` of the first denial of an unbroken series up to this one.
    pub(super) first_sent_us: u64,
}

/// What a denial implies for a later charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeated {
    /// The store would deny the charge with this outcome, and would record nothing that matters.
    Whole(Outcome),
    /// The store would deny the charge, but record it.
    Recorded,
}

impl Denial {
    /// Returns what is known about a later charge; `None` if the store has to decide it.
    pub(super) fn repeat(&self, charge: &Charge, now_us: u64) -> Option<Repeated> {
        let (kernel, cost) = (&charge.kernel, charge.cost);
        let is_for_another = (cost.needed(), kernel.max_cost()) != (self.needed, self.max_cost);
        if is_for_another && kernel.reading_depends_on_cost() {
            return None;
        }
        // The store decided between `sent_us` and `received_us`, so its time now is between these two.
        let attempt_at = |base_us: u64| {
            let passed_us = now_us.saturating_sub(base_us);
            Attempt { now_us: self.snapshot.now_us + passed_us, cost }
        };
        let latest = attempt_at(self.sent_us);
        let reading = kernel.reading_later(&self.snapshot.reading, latest.now_us)?;
        if kernel.wait(&reading, latest) == RetryAfter::Now {
            return None;
        }
        // Uses the earliest time, so that waits are too long rather than too short.
        let attempt = attempt_at(self.received_us);
        let reading = kernel.reading_later(&self.snapshot.reading, attempt.now_us)?;
        let mut report = kernel.report(&reading, attempt, Verdict::Over);
        if !is_repeatable(charge, &reading) {
            return charge.cost.changes_counter().then_some(Repeated::Recorded);
        }
        if charge.charging == Charging::Postpaid {
            report.over_by = report.over_by.max(cost.taken());
        }
        let snapshot = CounterSnapshot { now_us: attempt.now_us, reading };
        let decided_by = DecidedBy::DenyCache(snapshot);
        Some(Repeated::Whole(Outcome { verdict: Verdict::Over, report, decided_by }))
    }
}

impl Repeated {
    pub(super) fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Whole(outcome) => Some(outcome),
            Self::Recorded => None,
        }
    }
}

/// `true` if a denied charge to this counter can skip the store. A denied postpaid hit is recorded, and then a refund
/// frees fewer units.
pub(super) fn is_repeatable(charge: &Charge, reading: &CounterReading) -> bool {
    match charge.charging {
        Charging::Prepaid => true,
        Charging::Postpaid => charge.kernel.may_stay_unrecorded(reading, charge.cost),
    }
}

/// Times kept in [`ForgottenDenials`]. A counter's hash chooses its time, so counters can share one: a denial that
/// could be kept is then dropped.
const PLACES: usize = 256;

/// When a counter's denials were last forgotten because units were returned to it. A denial whose request was sent
/// before that can still arrive later, and must not be kept.
#[derive(Debug)]
pub(super) struct ForgottenDenials {
    hasher: RandomState,
    /// First instant after the last time that denials were forgotten; 0 if never.
    after_us: Box<[AtomicU64]>,
}

impl ForgottenDenials {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), after_us: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Voids the counter's denials whose requests were sent up to now.
    pub(super) fn record(&self, key: &str, now_us: u64) {
        self.place(key).fetch_max(now_us.saturating_add(1), Ordering::SeqCst);
    }

    /// `true` if units were returned to the counter after the request was sent.
    pub(super) fn is_void(&self, key: &str, sent_us: u64) -> bool {
        sent_us < self.place(key).load(Ordering::SeqCst)
    }

    fn place(&self, key: &str) -> &AtomicU64 {
        let hash = self.hasher.hash_one(key);
        &self.after_us[usize::try_from(hash % PLACES as u64).unwrap_or(0)]
    }
}
