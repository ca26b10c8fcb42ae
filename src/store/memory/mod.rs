//! Counters in this process's memory: the embedded default, and the oracle that the Redis store is held against.
//!
//! A sharded map. A request locks the shards of all its keys, in order, and decides with nothing moving; requests that
//! share no shard do not wait for each other.

mod shard;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::clock::{Clock, SystemClock};
use crate::engine::algorithm::Attempt;
use crate::engine::{
    Charge, Charges, CounterSnapshot, DecidedBy, Outcome, Outcomes, Reset, Store, StoreError, Verdict,
};

use shard::{Place, Shard};

/// More shards than cores, so that two cores seldom want the same one.
const MOST_SHARDS: usize = 64;
/// Fewer keys than that in a shard make evictions a matter of luck.
const LEAST_KEYS_PER_SHARD: usize = 256;

/// How much a memory store may hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Keys at most, at least 1; a sliding log counts as one more for every 16 grants that it has room for. When full,
    /// the key that is closest to being as if never used goes first.
    pub max_keys: usize,
    /// How long a key stays after that moment, microseconds: a clock that steps back by less forgets nothing.
    pub slack_us: u64,
}

impl Default for MemoryOptions {
    /// A million keys, kept for a second.
    fn default() -> Self {
        Self { max_keys: 1_000_000, slack_us: 1_000_000 }
    }
}

/// The counters.
#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    clock: C,
}

/// What a memory store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Keys now.
    pub keys: u64,
    /// Keys given up for lack of room, since the start.
    pub evictions: u64,
}

type Held<'s> = SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>;

impl<C: Clock> MemoryStore<C> {
    /// An empty store.
    #[must_use]
    pub fn new(options: MemoryOptions, clock: C) -> Self {
        let max_keys = options.max_keys.max(1);
        let count = (max_keys / LEAST_KEYS_PER_SHARD).clamp(1, MOST_SHARDS);
        let shard = |_| Mutex::new(Shard::new(max_keys / count, options.slack_us));
        Self { shards: (0..count).map(shard).collect(), hasher: RandomState::new(), clock }
    }

    /// Decides at an explicit time; see [`Store::decide`].
    #[must_use]
    pub fn decide_at(&self, charges: &Charges, now_us: u64) -> Outcomes {
        let homes: SmallVec<[usize; 2]> =
            charges.as_slice().iter().map(|charge| self.home(charges.key(charge))).collect();
        let mut held = self.lock(&homes);
        let asks: SmallVec<[Asked<'_>; 2]> = charges
            .as_slice()
            .iter()
            .zip(&homes)
            .map(|(charge, &home)| Asked::look(charges, charge, home, &mut held, now_us))
            .collect();
        let request_denied = charges.is_denied(|place| asks[place].verdict);
        let by_charge = asks.iter().map(|asked| asked.settle(request_denied, &mut held)).collect();
        for (_, shard) in &mut held {
            shard.tidy(now_us);
        }
        Outcomes { by_charge }
    }

    fn home(&self, key: &str) -> usize {
        // The shard's own map uses the low bits of another hash, so any bits serve here.
        let hash = self.hasher.hash_one(key);
        usize::try_from(hash % self.shards.len() as u64).unwrap_or(0)
    }

    /// Locks every shard of `homes` once, in rising order, so that no two requests wait for each other.
    fn lock(&self, homes: &[usize]) -> Held<'_> {
        let mut sorted: SmallVec<[usize; 2]> = SmallVec::from_slice(homes);
        sorted.sort_unstable();
        sorted.dedup();
        sorted.into_iter().map(|home| (home, self.shards[home].lock())).collect()
    }

    /// Forgets some of the keys that have run out: a share of every shard per call, so that no call takes long.
    pub fn sweep(&self) {
        let now_us = self.clock.now_us();
        for shard in &self.shards {
            shard.lock().sweep(now_us);
        }
    }

    /// Counts keys and evictions.
    #[must_use]
    pub fn census(&self) -> Census {
        self.shards.iter().fold(Census::default(), |sum, shard| {
            let one = shard.lock().census();
            Census { keys: sum.keys + one.keys, evictions: sum.evictions + one.evictions }
        })
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        Ok(self.decide_at(charges, self.clock.now_us()))
    }
}

impl<C: Clock> Reset for MemoryStore<C> {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let forget = |charge| {
            let key = charges.key(charge);
            self.shards[self.home(key)].lock().remove(key)
        };
        Ok(charges.as_slice().iter().map(forget).collect())
    }
}

impl<S: Store> Store for std::sync::Arc<S> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        self.as_ref().decide(charges).await
    }
}

/// A charge with its verdict on the unchanged counter.
struct Asked<'c> {
    charge: &'c Charge,
    key: &'c str,
    home: usize,
    place: Option<Place>,
    ask: Attempt,
    verdict: Verdict,
}

impl<'c> Asked<'c> {
    fn look(charges: &'c Charges, charge: &'c Charge, home: usize, held: &mut Held<'_>, now_us: u64) -> Self {
        let key = charges.key(charge);
        let ask = Attempt { now_us, cost: charge.cost };
        let shard = shard_of(held, home);
        let place = shard.find(key);
        let verdict = charge.kernel.verdict(place.and_then(|place| shard.state(place)), ask);
        Self { charge, key, home, place, ask, verdict }
    }

    /// Records the charge if it is to be recorded, and reports.
    fn settle(&self, request_denied: bool, held: &mut Held<'_>) -> Outcome {
        let (kernel, shard) = (&self.charge.kernel, shard_of(held, self.home));
        let mut place = self.place;
        if self.charge.is_recorded(self.verdict, request_denied) {
            let before = place.and_then(|place| shard.take(place));
            if let Some(after) = kernel.recorded(before, self.ask) {
                let fresh_at_us = kernel.fresh_at_us(&after);
                place = Some(shard.put(place, self.key, after, fresh_at_us));
            }
        }
        let facts = kernel.facts(place.and_then(|place| shard.state(place)), self.ask);
        let report = kernel.report(&facts, self.ask, self.verdict);
        let standing = CounterSnapshot { now_us: self.ask.now_us, facts };
        Outcome { verdict: self.verdict, report, basis: DecidedBy::Store(standing) }
    }
}

fn shard_of<'h>(held: &'h mut Held<'_>, home: usize) -> &'h mut Shard {
    let found = held.iter_mut().find(|(held_home, _)| *held_home == home);
    &mut found.expect("every home of the request was locked before").1
}
