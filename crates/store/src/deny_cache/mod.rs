//! Layer: repeats the denials of the store below from memory.
//!
//! While a counter, advanced in time, cannot fit a cost, the store's counter cannot either: other requests only take
//! more units, and only time frees them. Refunds, settles and resets through this process drop a denial immediately;
//! others take effect within [`DenyCacheOptions::max_age`]. Entry point: [`DenyCached`].

mod denial;

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::{
    Charge, Charges, Charging, DecidedBy, Outcome, Outcomes, PartialOutcomes, Role, Store, StoreError,
    Verdict,
};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, UnitWeighter};
use smallvec::SmallVec;

use self::denial::{Denial, ForgottenDenials, Repeated};
use base::clock::Clock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyCacheOptions {
    /// How long a denial is used without calling the store, counted from before the call that was denied.
    pub max_age: Duration,
    /// Maximum number of denials. A full cache evicts rarely used ones.
    pub max_keys: usize,
    /// `true` if the store records charges that it can undo (a cluster, or two backends). A denial can then be due to
    /// units that are returned a moment later, so it is used only as long as the store has been denying without a
    /// pause, and at most for `max_age`. Denials of charges that must be recorded are kept as well, so that nothing is
    /// reserved for their requests.
    pub store_reserves: bool,
}

/// Shared by all workers of a process.
#[derive(Debug)]
pub struct DenyCache {
    denials: Cache<Box<str>, Denial, UnitWeighter, RandomState>,
    forgotten: ForgottenDenials,
    max_age_us: u64,
    store_reserves: bool,
    /// When the newest denial expires. A process that denies nothing reads only this field, never `denials`.
    expires_us: AtomicU64,
    hits: AtomicU64,
    lookups: AtomicU64,
    found: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenyCacheStats {
    /// Current denials, including expired ones.
    pub keys: u64,
    /// Requests answered without the store since startup.
    pub hits: u64,
    /// Charges looked up since startup: all charges, while there are denials.
    pub lookups: u64,
    /// Looked-up charges that a denial denied.
    pub found: u64,
}

impl DenyCache {
    pub fn new(options: DenyCacheOptions) -> Self {
        let bounds = OptionsBuilder::new()
            .estimated_items_capacity(options.max_keys)
            .weight_capacity(options.max_keys as u64)
            .build()
            .expect("both capacities are set");
        // Keys contain request values: std's hasher is keyed, so callers cannot choose colliding keys.
        let hasher = RandomState::new();
        Self {
            denials: Cache::with_options(bounds, UnitWeighter, hasher, DefaultLifecycle::default()),
            forgotten: ForgottenDenials::new(),
            max_age_us: u64::try_from(options.max_age.as_micros()).unwrap_or(u64::MAX),
            store_reserves: options.store_reserves,
            expires_us: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            found: AtomicU64::new(0),
        }
    }

    pub fn purge(&self) {
        self.denials.clear();
    }

    /// Removes the denial of a counter to which units are returned, and voids denials still in flight. Call it before
    /// the units are returned and again afterwards. `now_us` is from the clock given to [`DenyCached`].
    pub fn forget(&self, key: &str, now_us: u64) {
        // The order matters: `insert` reads `forgotten` after writing.
        self.forgotten.record(key, now_us);
        self.denials.remove(key);
    }

    /// Removes old denials. `now_us` is from the clock given to [`DenyCached`].
    pub fn sweep(&self, now_us: u64) {
        let keep_us = self.keep_us();
        self.denials.retain(|_, denial| now_us.saturating_sub(denial.sent_us) < keep_us);
    }

    pub fn stats(&self) -> DenyCacheStats {
        DenyCacheStats {
            keys: self.denials.len() as u64,
            hits: self.hits.load(Ordering::Relaxed),
            lookups: self.lookups.load(Ordering::Relaxed),
            found: self.found.load(Ordering::Relaxed),
        }
    }

    fn has_denials(&self, now_us: u64) -> bool {
        now_us < self.expires_us.load(Ordering::Relaxed)
    }

    /// How long a denial is used after its request was sent.
    fn usable_us(&self, denial: &Denial) -> u64 {
        if self.store_reserves {
            self.max_age_us.min(denial.sent_us - denial.first_sent_us)
        } else {
            self.max_age_us
        }
    }

    /// How long a denial is kept: as long as it is used, or until it is clear whether the next denial continues the
    /// series.
    fn keep_us(&self) -> u64 {
        if self.store_reserves { self.max_age_us.saturating_mul(2) } else { self.max_age_us }
    }

    fn insert(&self, key: &str, denial: Denial) {
        let known = self.denials.peek(key);
        // Answers can arrive in a different order than the store decided. The newer denial stays.
        if known.is_some_and(|known| known.sent_us > denial.sent_us) {
            return;
        }
        let in_row = known.filter(|known| denial.sent_us - known.sent_us < self.keep_us());
        let first_sent_us = in_row.map_or(denial.sent_us, |known| known.first_sent_us);
        self.denials.insert(key.into(), Denial { first_sent_us, ..denial });
        if self.forgotten.is_void(key, denial.sent_us) {
            self.denials.remove(key);
        }
        self.expires_us.fetch_max(denial.sent_us.saturating_add(self.keep_us()), Ordering::Relaxed);
    }

    /// Returns the cached answer to a request; `None` if the denials do not deny it.
    fn answer(&self, charges: &Charges, now_us: u64) -> Option<CachedAnswer> {
        if !self.has_denials(now_us) {
            return None;
        }
        let denials: SmallVec<[Option<Repeated>; 2]> =
            charges.iter().map(|(key, charge)| self.denied(key, charge, now_us)).collect();
        self.lookups.fetch_add(denials.len() as u64, Ordering::Relaxed);
        let found = denials.iter().flatten().count();
        self.found.fetch_add(found as u64, Ordering::Relaxed);
        if found == 0 || !charges.is_denied(|index| denials[index].is_some()) {
            return None;
        }
        let known: SmallVec<[Option<Outcome>; 2]> =
            denials.iter().map(|denial| denial.and_then(Repeated::outcome)).collect();
        let mut asked = charges.filter_map(|index, charge| known[index].is_none().then(|| charge.clone()));
        asked.set_denied();
        Some(CachedAnswer { known, asked })
    }

    fn denied(&self, key: &str, charge: &Charge, now_us: u64) -> Option<Repeated> {
        if charge.cost.is_refund() || charge.role == Role::Settle {
            return None;
        }
        let is_usable = |denial: &Denial| now_us.saturating_sub(denial.sent_us) < self.usable_us(denial);
        self.denials.get(key).filter(is_usable)?.repeat(charge, now_us)
    }

    /// Returns the cached denial for a charge that the store did not answer. A charge that would have been recorded is
    /// denied like a prepaid one.
    fn known_denial(&self, (key, charge): (&str, &Charge), now_us: u64) -> Option<Outcome> {
        let unrecorded = Charge { charging: Charging::Prepaid, ..charge.clone() };
        self.denied(key, &unrecorded, now_us)?.outcome()
    }

    /// Keeps the denials among the outcomes, and drops denials of counters that have units again.
    fn record(
        &self,
        charges: &Charges,
        result: &Result<Outcomes, StoreError>,
        sent_us: u64,
        clock: &impl Clock,
    ) {
        let has_denials = self.has_denials(sent_us);
        for (index, (key, charge)) in charges.iter().enumerate() {
            let outcome = match result {
                Ok(outcomes) => Ok(outcomes.by_charge[index]),
                Err(error) => error.outcome(index),
            };
            let Ok(outcome) = outcome else { continue };
            if charge.role == Role::Settle {
                // A settle is not denied, and it changes the units left since any older denial.
                self.denials.remove(key);
                continue;
            }
            if outcome.verdict == Verdict::Fits && has_denials {
                self.denials.remove(key);
            }
            // A limit of 0 denies without the cache, and a slot can be released at any time.
            if let (Verdict::Over, DecidedBy::Store(snapshot)) = (outcome.verdict, outcome.decided_by)
                && charge.kernel.has_counter()
                && charge.kernel.is_freed_by_time()
                && (self.store_reserves || denial::is_repeatable(charge, &snapshot.reading))
            {
                let (needed, max_cost) = (charge.cost.needed(), charge.kernel.max_cost());
                let (received_us, first_sent_us) = (clock.now_us(), sent_us);
                self.insert(key, Denial { snapshot, needed, max_cost, sent_us, received_us, first_sent_us });
            }
        }
    }
}

/// Forgets the denials of counters to which a request returns units: before the request is sent, and when it ends in
/// any way.
struct RefundGuard<'d, C: Clock> {
    cache: &'d DenyCache,
    clock: &'d C,
    charges: &'d Charges,
}

impl<'d, C: Clock> RefundGuard<'d, C> {
    /// `None` if the request returns nothing.
    fn new(cache: &'d DenyCache, clock: &'d C, charges: &'d Charges) -> Option<Self> {
        let gives_back = charges.values().any(|charge| charge.cost.refunded() > 0);
        gives_back.then(|| {
            let guard = Self { cache, clock, charges };
            guard.forget_denials();
            guard
        })
    }

    fn forget_denials(&self) {
        let now_us = self.clock.now_us();
        for (key, _) in self.charges.iter().filter(|(_, charge)| charge.cost.refunded() > 0) {
            self.cache.forget(key, now_us);
        }
    }
}

impl<C: Clock> Drop for RefundGuard<'_, C> {
    fn drop(&mut self) {
        self.forget_denials();
    }
}

/// What the denials imply for a request that they deny.
struct CachedAnswer {
    /// One per charge; `None` if the store has to answer it.
    known: SmallVec<[Option<Outcome>; 2]>,
    /// Charges that the store has to answer.
    asked: Charges,
}

impl CachedAnswer {
    /// Merges the store's result for `asked` into the answer. If the store has no outcome for a charge, `known_denial`
    /// returns its cached denial.
    fn completed(
        self,
        result: Result<Outcomes, StoreError>,
        known_denial: impl Fn((&str, &Charge)) -> Option<Outcome>,
    ) -> Result<Outcomes, StoreError> {
        match result {
            Ok(answered) => {
                let mut answered = answered.by_charge.into_iter();
                Ok(self.known.into_iter().filter_map(|known| known.or_else(|| answered.next())).collect())
            }
            Err(error) => {
                let mut asked = self.asked.iter().enumerate();
                let answer = |(place, charge)| {
                    let denial = |cause: &StoreError| known_denial(charge).ok_or_else(|| cause.clone());
                    error.outcome(place).or_else(denial)
                };
                let by_charge = self.known.iter().filter_map(|known| match known {
                    Some(outcome) => Some(Ok(*outcome)),
                    None => asked.next().map(answer),
                });
                PartialOutcomes::collect(by_charge.collect(), None)
            }
        }
    }
}

/// A store behind a deny cache.
#[derive(Debug)]
pub struct DenyCached<S, C> {
    below: S,
    /// The clock is monotonic.
    cache: Option<(Arc<DenyCache>, C)>,
}

impl<S, C> DenyCached<S, C> {
    /// Wraps `below`; without a cache the layer does nothing. The clocks of all layers over one cache must count from
    /// the same instant.
    pub fn new(below: S, cache: Option<(Arc<DenyCache>, C)>) -> Self {
        Self { below, cache }
    }
}

impl<S: Store, C: Clock> DenyCached<S, C> {
    /// Sends the remaining charges to the store, marked as denied ([`Charges::set_denied`]), so that the store reserves
    /// nothing for the request.
    async fn complete(
        &self,
        answer: CachedAnswer,
        sent_us: u64,
        cache: &DenyCache,
        clock: &C,
    ) -> Result<Outcomes, StoreError> {
        let result = self.below.decide(&answer.asked).await;
        cache.record(&answer.asked, &result, sent_us, clock);
        answer.completed(result, |asked| cache.known_denial(asked, sent_us))
    }
}

impl<S: Store, C: Clock> Store for DenyCached<S, C> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let Some((cache, clock)) = &self.cache else {
            return self.below.decide(charges).await;
        };
        let sent_us = clock.now_us();
        let _refund = RefundGuard::new(cache, clock, charges);
        let completing = match cache.answer(charges, sent_us) {
            None => None,
            Some(answer) if answer.asked.is_empty() => {
                cache.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(answer.known.into_iter().flatten().collect());
            }
            // Boxed because this rare future would enlarge every decision's future. For the same reason the answer
            // moves into it before the await.
            Some(answer) => Some(Box::pin(self.complete(answer, sent_us, cache, clock))),
        };
        if let Some(completing) = completing {
            return completing.await;
        }
        let result = self.below.decide(charges).await;
        cache.record(charges, &result, sent_us, clock);
        result
    }
}
