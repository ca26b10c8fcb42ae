//! Layer: answers from memory what the store below has denied and would deny again.
//!
//! A denial comes with the counter it rests on. Without refunds a counter only ever fills up by what others do and empties by
//! the passing of time, so for as long as that counter, moved on in time, has no room, the store's has none either. Time is
//! counted from before the store was asked, so a denial is forgotten early rather than late. What can shorten a denial from
//! outside (refunds, resets, a lost counter) is noticed after [`DenyCacheOptions::max_age`] at the latest, and at once where
//! it comes through here.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::clock::Clock;
use crate::engine::algorithm::Attempt;
use crate::engine::{
    Charge, Charges, Charging, CounterSnapshot, DecidedBy, Outcome, Outcomes, Report, RetryAfter, Role,
    Store, StoreError, Verdict,
};

/// More than cores, so that two of them seldom want the same one.
const SHARDS: usize = 64;

/// How much is remembered, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyCacheOptions {
    /// The longest a denial is repeated without the store being asked.
    pub max_age: Duration,
    /// Denials at most; when full, new ones are not remembered until old ones have aged.
    pub max_keys: usize,
    /// Only deny without the store where no other limit that binds would be left unasked: callers are told how all of
    /// them stand.
    pub require_all_limits: bool,
}

/// The denials. Shared by all workers of a process.
#[derive(Debug)]
pub struct DenyCache {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    max_age_us: u64,
    max_keys_per_shard: usize,
    require_all_limits: bool,
    /// Denials in all shards: with none, as long as nobody is denied, no shard is looked at.
    keys: AtomicUsize,
    hits: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    denials: HashMap<Box<str>, Denial>,
    swept_us: u64,
}

/// What the store said of one counter.
#[derive(Clone, Copy, Debug)]
struct Denial {
    standing: CounterSnapshot,
    /// The units that the counter had no room for.
    needed: u64,
    /// By this process's clock: before the store was asked, and after it had answered.
    sent_us: u64,
    received_us: u64,
}

/// What a deny cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DenyCacheStats {
    /// Denials now, aged ones included.
    pub keys: u64,
    /// Requests answered without the store, since the start.
    pub hits: u64,
}

impl DenyCache {
    /// An empty cache.
    #[must_use]
    pub fn new(options: DenyCacheOptions) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            max_age_us: u64::try_from(options.max_age.as_micros()).unwrap_or(u64::MAX),
            max_keys_per_shard: options.max_keys.div_ceil(SHARDS),
            require_all_limits: options.require_all_limits,
            keys: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
        }
    }

    /// Forgets everything.
    pub fn purge(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            self.keys.fetch_sub(shard.denials.len(), Ordering::Relaxed);
            shard.denials.clear();
        }
    }

    /// Forgets one counter.
    pub fn reset(&self, key: &str) {
        if !self.is_empty() && self.shard(key).lock().denials.remove(key).is_some() {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets what has aged. `now_us` is by the clock of the layers.
    pub fn sweep(&self, now_us: u64) {
        for shard in &self.shards {
            self.sweep_shard(&mut shard.lock(), now_us);
        }
    }

    /// Counts denials and hits.
    #[must_use]
    pub fn stats(&self) -> DenyCacheStats {
        let keys = self.keys.load(Ordering::Relaxed) as u64;
        DenyCacheStats { keys, hits: self.hits.load(Ordering::Relaxed) }
    }

    fn is_empty(&self) -> bool {
        self.keys.load(Ordering::Relaxed) == 0
    }

    fn sweep_shard(&self, shard: &mut Shard, now_us: u64) {
        let before = shard.denials.len();
        shard.denials.retain(|_, denial| now_us.saturating_sub(denial.sent_us) < self.max_age_us);
        self.keys.fetch_sub(before - shard.denials.len(), Ordering::Relaxed);
        shard.swept_us = now_us;
    }

    fn shard(&self, key: &str) -> &Mutex<Shard> {
        // The map inside uses another hasher, so any bits serve here.
        &self.shards[usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0)]
    }

    fn find(&self, key: &str, now_us: u64) -> Option<Denial> {
        let denial = *self.shard(key).lock().denials.get(key)?;
        (now_us.saturating_sub(denial.sent_us) < self.max_age_us).then_some(denial)
    }

    fn remember(&self, key: &str, denial: Denial) {
        let mut shard = self.shard(key).lock();
        if let Some(known) = shard.denials.get_mut(key) {
            // Answers may come in another order than they were given.
            if known.sent_us <= denial.sent_us {
                *known = denial;
            }
            return;
        }
        let is_full = |shard: &Shard| shard.denials.len() >= self.max_keys_per_shard;
        // At most a few times within an age: to look at everything for every denial would cost more than the store.
        let since_swept_us = denial.received_us.saturating_sub(shard.swept_us);
        if is_full(&shard) && since_swept_us >= self.max_age_us / 4 {
            self.sweep_shard(&mut shard, denial.received_us);
        }
        if !is_full(&shard) {
            shard.denials.insert(key.into(), denial);
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Answers a request, if what is remembered suffices.
    fn answer(&self, charges: &Charges, now_us: u64) -> Option<Outcomes> {
        if self.is_empty() {
            return None;
        }
        let by_charge: SmallVec<[Option<Outcome>; 2]> =
            charges.iter().map(|(key, charge)| self.denied(key, charge, now_us)).collect();
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

    fn denied(&self, key: &str, charge: &Charge, now_us: u64) -> Option<Outcome> {
        if charge.cost.is_refund() {
            return None;
        }
        let denial = self.find(key, now_us)?;
        denial.repeated(charge, now_us)
    }

    /// Forgets counters that units may have gone back to, though nobody says so.
    fn note_refunds(&self, charges: &Charges) {
        for (key, _) in charges.iter().filter(|(_, charge)| charge.cost.is_refund()) {
            self.reset(key);
        }
    }

    /// Remembers the denials among the answers, and forgets counters that are not what they were.
    fn learn(&self, charges: &Charges, outcomes: &Outcomes, sent_us: u64, clock: &impl Clock) {
        for ((key, charge), outcome) in charges.iter().zip(&outcomes.by_charge) {
            let Some(outcome) = outcome else { continue };
            if outcome.verdict == Verdict::Fits {
                self.reset(key);
            }
            if let (Verdict::Over, DecidedBy::Store(standing)) = (outcome.verdict, outcome.decided_by)
                && is_final(charge, &outcome.report)
            {
                let (needed, received_us) = (charge.cost.needed(), clock.now_us());
                self.remember(key, Denial { standing, needed, sent_us, received_us });
            }
        }
    }
}

impl Denial {
    /// The same answer for a charge that comes later, if it is one.
    fn repeated(&self, charge: &Charge, now_us: u64) -> Option<Outcome> {
        let (kernel, cost) = (&charge.kernel, charge.cost);
        if kernel.facts_depend_on_cost() && cost.needed() != self.needed {
            return None; // what is known of a log is known for one cost
        }
        let after = |us: u64| Attempt { now_us: self.standing.now_us + now_us.saturating_sub(us), cost };
        let no_earlier = after(self.sent_us);
        let facts = kernel.facts_later(&self.standing.facts, no_earlier.now_us)?;
        if kernel.wait(&facts, no_earlier) == RetryAfter::Now {
            return None;
        }
        // Who is told when to come back is to come back late rather than early.
        let ask = after(self.received_us);
        let facts = kernel.facts_later(&self.standing.facts, ask.now_us)?;
        let mut report = kernel.report(&facts, ask, Verdict::Over);
        if charge.charging == Charging::Postpaid {
            report.over_by = report.over_by.max(cost.taken());
        }
        let standing = CounterSnapshot { now_us: ask.now_us, facts };
        (charge.charging == Charging::Prepaid || is_final(charge, &report)).then_some(Outcome {
            verdict: Verdict::Over,
            report,
            decided_by: DecidedBy::Store(standing),
        })
    }
}

/// Whether asking again changes nothing. A postpaid hit is recorded even when it is denied, which matters for none but a
/// fixed window that is used up: there it is forgotten with the window.
fn is_final(charge: &Charge, report: &Report) -> bool {
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
    /// Puts the layer over `below`; without a cache it does nothing. All layers over one cache share what the clock counts
    /// from.
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
        let outcomes = self.below.decide(charges).await;
        match &outcomes {
            Ok(outcomes) => cache.learn(charges, outcomes, sent_us, clock),
            Err(_) => cache.note_refunds(charges),
        }
        outcomes
    }
}
