//! Layer: denies from memory what the store below denied before and would deny again.
//!
//! A denial is kept with the counter that caused it. Unless units are given back, other requests only use up more of
//! that counter, and only time frees units. So while the counter, advanced in time, has no room for a cost, the
//! store's counter has none either. The age of a denial counts from before the store was called, so a denial expires
//! early rather than late. Refunds and resets through this process remove a denial at once; those elsewhere, and
//! counters that the store lost, take effect within [`DenyCacheOptions::max_age`].

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::engine::algorithm::Attempt;
use crate::engine::{
    Charge, Charges, Charging, CounterSnapshot, DecidedBy, Outcome, Outcomes, Report, RetryAfter, Role,
    Store, StoreError, Verdict,
};

/// How many denials are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyCacheOptions {
    /// How long a denial is used without calling the store.
    pub max_age: Duration,
    /// Maximum number of denials. A full cache evicts denials that are seldom used.
    pub max_keys: usize,
    /// Answer from the cache only if every limit that can deny is cached, because the response reports all of them.
    pub require_all_limits: bool,
}

/// The denials. Shared by all workers of a process.
#[derive(Debug)]
pub struct DenyCache {
    denials: Cache<Box<str>, Denial, UnitWeighter, RandomState>,
    max_age_us: u64,
    require_all_limits: bool,
    /// When the newest denial expires. A process that denies nothing reads this number and never `denials`.
    expires_us: AtomicU64,
    hits: AtomicU64,
}

/// A denial by the store.
#[derive(Clone, Copy, Debug)]
struct Denial {
    snapshot: CounterSnapshot,
    /// The units that the counter had no room for.
    needed: u64,
    /// By this process's clock: before the store was called, and after its answer.
    sent_us: u64,
    received_us: u64,
}

/// What a deny cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenyCacheStats {
    /// Denials now, expired ones included.
    pub keys: u64,
    /// Requests answered without the store since the start.
    pub hits: u64,
}

impl DenyCache {
    /// An empty cache.
    #[must_use]
    pub fn new(options: DenyCacheOptions) -> Self {
        let bounds = OptionsBuilder::new()
            .estimated_items_capacity(options.max_keys)
            .weight_capacity(options.max_keys as u64)
            .build()
            .expect("both capacities are set");
        // Keys contain values of requests: std's hasher is keyed, so callers cannot choose colliding keys.
        let hasher = RandomState::new();
        Self {
            denials: Cache::with_options(bounds, UnitWeighter, hasher, DefaultLifecycle::default()),
            max_age_us: u64::try_from(options.max_age.as_micros()).unwrap_or(u64::MAX),
            require_all_limits: options.require_all_limits,
            expires_us: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    /// Removes every denial.
    pub fn purge(&self) {
        self.denials.clear();
    }

    /// Removes the denial of one counter.
    pub fn remove(&self, key: &str) {
        self.denials.remove(key);
    }

    /// Removes expired denials. `now_us` is of the clock given to [`DenyCached`].
    pub fn sweep(&self, now_us: u64) {
        self.denials.retain(|_, denial| self.is_current(denial, now_us));
    }

    /// Counts denials and hits.
    #[must_use]
    pub fn stats(&self) -> DenyCacheStats {
        DenyCacheStats { keys: self.denials.len() as u64, hits: self.hits.load(Ordering::Relaxed) }
    }

    fn has_denials(&self, now_us: u64) -> bool {
        now_us < self.expires_us.load(Ordering::Relaxed)
    }

    fn is_current(&self, denial: &Denial, now_us: u64) -> bool {
        now_us.saturating_sub(denial.sent_us) < self.max_age_us
    }

    fn insert(&self, key: &str, denial: Denial) {
        // Answers may arrive in another order than the store decided: the newer denial stays.
        if self.denials.peek(key).is_none_or(|known| known.sent_us <= denial.sent_us) {
            self.denials.insert(key.into(), denial);
            self.expires_us.fetch_max(denial.sent_us.saturating_add(self.max_age_us), Ordering::Relaxed);
        }
    }

    /// The outcomes of a request, if the denials suffice to decide it.
    fn answer(&self, charges: &Charges, now_us: u64) -> Option<Outcomes> {
        if !self.has_denials(now_us) {
            return None;
        }
        let by_charge: SmallVec<[Option<Outcome>; 2]> =
            charges.iter().map(|(key, charge)| self.deny(key, charge, now_us)).collect();
        let is_denied =
            by_charge.iter().any(Option::is_some) && charges.is_denied(|index| by_charge[index].is_some());
        // A charge that is recorded although the request is denied has to reach the store.
        let is_answered = |(charge, denied): (&Charge, &Option<Outcome>)| {
            let may_be_skipped = !self.require_all_limits || charge.role == Role::NonBinding;
            denied.is_some() || is_denied && may_be_skipped && !charge.is_recorded(Verdict::Fits, true)
        };
        if !charges.values().zip(&by_charge).all(is_answered) {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(Outcomes { by_charge })
    }

    fn deny(&self, key: &str, charge: &Charge, now_us: u64) -> Option<Outcome> {
        if charge.cost.is_refund() {
            return None;
        }
        let denial = self.denials.get(key).filter(|denial| self.is_current(denial, now_us))?;
        denial.outcome(charge, now_us)
    }

    /// Keeps the denials among the outcomes, and removes those of counters that have room again.
    fn record(&self, charges: &Charges, outcomes: &Outcomes, sent_us: u64, clock: &impl Clock) {
        let has_denials = self.has_denials(sent_us);
        for ((key, charge), outcome) in charges.iter().zip(&outcomes.by_charge) {
            let Some(outcome) = outcome else { continue };
            if outcome.verdict == Verdict::Fits && has_denials {
                self.remove(key);
            }
            if let (Verdict::Over, DecidedBy::Store(snapshot)) = (outcome.verdict, outcome.decided_by)
                && is_repeatable(charge, &outcome.report)
            {
                let (needed, received_us) = (charge.cost.needed(), clock.now_us());
                self.insert(key, Denial { snapshot, needed, sent_us, received_us });
            }
        }
    }

    /// Removes the denials of counters to which a failed call may have given units back.
    fn record_failure(&self, charges: &Charges) {
        for (key, _) in charges.iter().filter(|(_, charge)| charge.cost.is_refund()) {
            self.remove(key);
        }
    }
}

impl Denial {
    /// The outcome for a later charge; `None` if the store has to decide it.
    fn outcome(&self, charge: &Charge, now_us: u64) -> Option<Outcome> {
        let (kernel, cost) = (&charge.kernel, charge.cost);
        if kernel.facts_depend_on_cost() && cost.needed() != self.needed {
            return None;
        }
        // The store decided between `sent_us` and `received_us`: its time now is between these two.
        let attempt_at = |base_us: u64| {
            let passed_us = now_us.saturating_sub(base_us);
            Attempt { now_us: self.snapshot.now_us + passed_us, cost }
        };
        let latest = attempt_at(self.sent_us);
        let facts = kernel.facts_later(&self.snapshot.facts, latest.now_us)?;
        if kernel.wait(&facts, latest) == RetryAfter::Now {
            return None;
        }
        // The report uses the earliest time, so that waits are too long rather than too short.
        let attempt = attempt_at(self.received_us);
        let facts = kernel.facts_later(&self.snapshot.facts, attempt.now_us)?;
        let mut report = kernel.report(&facts, attempt, Verdict::Over);
        if charge.charging == Charging::Postpaid {
            report.over_by = report.over_by.max(cost.taken());
        }
        let snapshot = CounterSnapshot { now_us: attempt.now_us, facts };
        is_repeatable(charge, &report).then_some(Outcome {
            verdict: Verdict::Over,
            report,
            decided_by: DecidedBy::Store(snapshot),
        })
    }
}

/// Whether a denied charge changes nothing that matters, so that the next one need not reach the store. A denied
/// postpaid hit is recorded; that does not matter if nothing remains and the debt is discarded.
fn is_repeatable(charge: &Charge, report: &Report) -> bool {
    match charge.charging {
        Charging::Prepaid => true,
        Charging::Postpaid => charge.kernel.discards_debt() && report.remaining == 0,
    }
}

/// Puts a deny cache over a store.
#[derive(Debug)]
pub struct DenyCached<S, C> {
    below: S,
    /// With a monotonic clock.
    cache: Option<(Arc<DenyCache>, C)>,
}

impl<S, C> DenyCached<S, C> {
    /// Puts the layer over `below`; without a cache it does nothing. The clocks of all layers over one cache must
    /// count from the same instant.
    #[must_use]
    pub fn new(below: S, cache: Option<(Arc<DenyCache>, C)>) -> Self {
        Self { below, cache }
    }
}

impl<S: Store, C: Clock> Store for DenyCached<S, C> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let Some((cache, clock)) = &self.cache else {
            return self.below.decide(charges).await;
        };
        let sent_us = clock.now_us();
        if let Some(outcomes) = cache.answer(charges, sent_us) {
            return Ok(outcomes);
        }
        let result = self.below.decide(charges).await;
        match &result {
            Ok(outcomes) => cache.record(charges, outcomes, sent_us, clock),
            Err(_) => cache.record_failure(charges),
        }
        result
    }
}
