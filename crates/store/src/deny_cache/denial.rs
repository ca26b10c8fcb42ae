//! One denial: what it says about later charges to its counter, and for how long; and which denials came too late to be
//! kept.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use engine::algorithm::{Attempt, CounterReading};
use engine::{Charge, Charging, CounterSnapshot, DecidedBy, Outcome, RetryAfter, Verdict};

/// A denial by the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    pub(super) snapshot: CounterSnapshot,
    /// The units that the counter had no room for.
    pub(super) needed: u64,
    /// [`Kernel::max_cost`](engine::algorithm::Kernel::max_cost) of the limit that denied.
    pub(super) max_cost: u64,
    /// The time of this process's clock before the store was called. `received_us` is the time after its answer.
    pub(super) sent_us: u64,
    pub(super) received_us: u64,
    /// `sent_us` of the first denial in an unbroken row that ends with this one.
    pub(super) first_sent_us: u64,
}

/// What a denial says about a later charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repeated {
    /// The store would deny the charge with this outcome, and record nothing that matters.
    Whole(Outcome),
    /// The store would deny the charge, and record it.
    Recorded,
}

impl Denial {
    /// What is known of a later charge; `None` if the store has to decide it.
    pub(super) fn repeat(&self, charge: &Charge, now_us: u64) -> Option<Repeated> {
        let (kernel, cost) = (&charge.kernel, charge.cost);
        let is_for_another = (cost.needed(), kernel.max_cost()) != (self.needed, self.max_cost);
        if is_for_another && kernel.reading_depends_on_cost() {
            return None;
        }
        // The store decided between `sent_us` and `received_us`: its time now is between these two.
        let attempt_at = |base_us: u64| {
            let passed_us = now_us.saturating_sub(base_us);
            Attempt { now_us: self.snapshot.now_us + passed_us, cost }
        };
        let latest = attempt_at(self.sent_us);
        let reading = kernel.reading_later(&self.snapshot.reading, latest.now_us)?;
        if kernel.wait(&reading, latest) == RetryAfter::Now {
            return None;
        }
        // The report uses the earliest time, so that waits are too long rather than too short.
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

/// Whether a denied charge to this counter need not reach the store. A denied postpaid hit is recorded, and a refund
/// then frees fewer units.
pub(super) fn is_repeatable(charge: &Charge, reading: &CounterReading) -> bool {
    match charge.charging {
        Charging::Prepaid => true,
        Charging::Postpaid => charge.kernel.may_stay_unrecorded(reading, charge.cost),
    }
}

/// [`ForgottenDenials`] keeps this many times. The hash of a counter chooses its time, so counters may share one: a
/// denial may then be dropped that could have been kept.
const PLACES: usize = 256;

/// When denials of a counter were last forgotten because units were given back. The denial of a request that was sent
/// before that time may be received later, and must then not be kept.
#[derive(Debug)]
pub(super) struct ForgottenDenials {
    hasher: RandomState,
    /// The instant after the last one at which denials were forgotten; 0 if none was.
    after_us: Box<[AtomicU64]>,
}

impl ForgottenDenials {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), after_us: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Records that denials of the counter are void if their requests were sent up to now.
    pub(super) fn record(&self, key: &str, now_us: u64) {
        self.place(key).fetch_max(now_us.saturating_add(1), Ordering::SeqCst);
    }

    /// Whether a denial of the counter is void, because units were given back after its request was sent at this time.
    pub(super) fn is_void(&self, key: &str, sent_us: u64) -> bool {
        sent_us < self.place(key).load(Ordering::SeqCst)
    }

    fn place(&self, key: &str) -> &AtomicU64 {
        let hash = self.hasher.hash_one(key);
        &self.after_us[usize::try_from(hash % PLACES as u64).unwrap_or(0)]
    }
}
