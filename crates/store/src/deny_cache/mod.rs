//! Layer: denies from memory what the store below denied before and would deny again.
//!
//! A denial is kept with the counter that caused it. Unless units are given back, other requests only use up more of
//! that counter, and only time frees units. So while the counter, advanced in time, has no room for a cost, the
//! store's counter has none either. The age of a denial counts from before the store was called, so a denial expires
//! early rather than late. Refunds, settles and resets through this process remove a denial at once, also one that is
//! still under way; those elsewhere, and counters that the store lost, take effect within
//! [`DenyCacheOptions::max_age`].
//!
//! A request that is denied while some of its numbers are still unknown is sent to the store as denied
//! ([`Charges::set_denied`]): the store then reserves no units for it.

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

/// How many denials are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyCacheOptions {
    /// How long a denial is used without calling the store.
    pub max_age: Duration,
    /// Maximum number of denials. A full cache evicts denials that are seldom used.
    pub max_keys: usize,
    /// Whether the store records charges that it may undo: a cluster, or two backends. A denial may then be
    /// due to units that are returned a moment later. It is used for as long as the store has been denying
    /// without a pause, `max_age` at most. Denials of charges that have to be recorded are kept too, so that nothing is
    /// reserved for their requests.
    pub store_reserves: bool,
}

/// The denials. Shared by all workers of a process.
#[derive(Debug)]
pub struct DenyCache {
    denials: Cache<Box<str>, Denial, UnitWeighter, RandomState>,
    forgotten: ForgottenDenials,
    max_age_us: u64,
    store_reserves: bool,
    /// When the newest denial is forgotten. A process that denies nothing reads this number and never `denials`.
    expires_us: AtomicU64,
    hits: AtomicU64,
    lookups: AtomicU64,
    found: AtomicU64,
}

/// What a deny cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenyCacheStats {
    /// Denials now, expired ones included.
    pub keys: u64,
    /// Requests answered without the store since the start.
    pub hits: u64,
    /// Charges that were looked up since the start: all charges, while there are denials.
    pub lookups: u64,
    /// Charges among them that a denial denied.
    pub found: u64,
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
            forgotten: ForgottenDenials::new(),
            max_age_us: u64::try_from(options.max_age.as_micros()).unwrap_or(u64::MAX),
            store_reserves: options.store_reserves,
            expires_us: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            found: AtomicU64::new(0),
        }
    }

    /// Removes every denial.
    pub fn purge(&self) {
        self.denials.clear();
    }

    /// Removes the denial of a counter to which units are given back, and voids the denials that are still under way.
    /// To be called before the units are given back, and again after. `now_us` is of the clock given to [`DenyCached`].
    pub fn forget(&self, key: &str, now_us: u64) {
        // The order matters: `insert` looks at `forgotten` after it has written.
        self.forgotten.record(key, now_us);
        self.denials.remove(key);
    }

    /// Removes old denials. `now_us` is of the clock given to [`DenyCached`].
    pub fn sweep(&self, now_us: u64) {
        let keep_us = self.keep_us();
        self.denials.retain(|_, denial| now_us.saturating_sub(denial.sent_us) < keep_us);
    }

    /// Counts denials and hits.
    #[must_use]
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

    /// How long a denial is kept: as long as it is used, or long enough to tell whether the next denial continues its
    /// row.
    fn keep_us(&self) -> u64 {
        if self.store_reserves { self.max_age_us.saturating_mul(2) } else { self.max_age_us }
    }

    fn insert(&self, key: &str, denial: Denial) {
        let known = self.denials.peek(key);
        // Answers may arrive in another order than that in which the store decided. The newer denial stays.
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

    /// What the denials say about a request; `None` if they do not deny it.
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

    /// The denial of a charge that the store did not answer. A charge that should have been recorded is denied too,
    /// like a prepaid one.
    fn known_denial(&self, (key, charge): (&str, &Charge), now_us: u64) -> Option<Outcome> {
        let unrecorded = Charge { charging: Charging::Prepaid, ..charge.clone() };
        self.denied(key, &unrecorded, now_us)?.outcome()
    }

    /// Keeps the denials among the outcomes, and removes those of counters that have room again.
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
                // Its outcome is no denial, and a denial from before it has another number of units left.
                self.denials.remove(key);
                continue;
            }
            if outcome.verdict == Verdict::Fits && has_denials {
                self.denials.remove(key);
            }
            // A limit of 0 denies without the cache.
            if let (Verdict::Over, DecidedBy::Store(snapshot)) = (outcome.verdict, outcome.decided_by)
                && charge.kernel.has_counter()
                && (self.store_reserves || denial::is_repeatable(charge, &snapshot.reading))
            {
                let (needed, max_cost) = (charge.cost.needed(), charge.kernel.max_cost());
                let (received_us, first_sent_us) = (clock.now_us(), sent_us);
                self.insert(key, Denial { snapshot, needed, max_cost, sent_us, received_us, first_sent_us });
            }
        }
    }
}

/// Forgets the denials of the counters to which a request gives units back: before the request is sent, and when it
/// ends in any way.
struct RefundGuard<'d, C: Clock> {
    cache: &'d DenyCache,
    clock: &'d C,
    charges: &'d Charges,
}

impl<'d, C: Clock> RefundGuard<'d, C> {
    /// `None` for a request that gives nothing back.
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

/// What the denials say about a request that they deny.
struct CachedAnswer {
    /// One per charge. `None` if the store has to answer it.
    known: SmallVec<[Option<Outcome>; 2]>,
    /// The charges that the store has to answer.
    asked: Charges,
}

impl CachedAnswer {
    /// The result of the request, completed with the store's result for the charges in `asked`. `known_denial` returns
    /// the denial of a charge that has no outcome from the store.
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

impl<S: Store, C: Clock> DenyCached<S, C> {
    /// Asks the store for the rest of a request that is known to be denied.
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
            // This rare future is boxed, because it would make the future of every decision larger. For the same reason
            // the answer is moved into it before the await.
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
