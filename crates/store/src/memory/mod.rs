//! Keeps counters in this process's memory: the default store, and the reference in the Redis store's tests.
//!
//! The map is sharded. A request locks all its shards, in order, so it is decided atomically; requests without a common
//! shard do not wait for each other.

mod shard;
#[cfg(test)]
mod tests;

use std::hash::BuildHasher;

use engine::algorithm::{Attempt, State};
use engine::{
    Charge, Charges, CounterSnapshot, DecidedBy, KeyPage, Listing, Outcome, Outcomes, Reset, SHOWN_SLOTS,
    Store, StoreError, Verdict,
};
use hashbrown::DefaultHashBuilder;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use base::clock::{Clock, SystemClock};

pub use shard::MemoryStats;
use shard::{EXHAUSTED, EntryIndex, Shard, Worth};

/// More shards than cores, so that two cores rarely need the same one.
const MAX_SHARDS: usize = 64;
/// With fewer keys per shard, one counter could evict all others of its shard while other shards are empty: the
/// heaviest counter, a postpaid log of 32,768 grants, counts as 2,049 keys.
const MIN_KEYS_PER_SHARD: usize = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Maximum number of keys, at least 1; a sliding log counts as one more key per 16 grants. A full store evicts
    /// counters of limits that have many counters, and of these the ones with the smallest used share.
    pub max_keys: usize,
    /// How long a key is kept after its counter equals an empty one, microseconds. If the clock steps back by less than
    /// this, nothing is lost.
    pub grace_us: u64,
}

impl Default for MemoryOptions {
    /// A million keys, kept for a second.
    fn default() -> Self {
        Self { max_keys: 1_000_000, grace_us: 1_000_000 }
    }
}

#[derive(Debug)]
pub struct MemoryStore<C = SystemClock> {
    shards: Vec<Mutex<Shard>>,
    hasher: DefaultHashBuilder,
    clock: C,
}

/// The locked shards of one request, each with its index.
type LockedShards<'s> = SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>;

impl<C: Clock> MemoryStore<C> {
    pub fn new(options: MemoryOptions, clock: C) -> Self {
        let max_keys = options.max_keys.max(1);
        let count = (max_keys / MIN_KEYS_PER_SHARD).clamp(1, MAX_SHARDS);
        let shard = |_| Shard::new(max_keys / count, options.grace_us, fastrand::Rng::new());
        Self::of_shards((0..count).map(shard), clock)
    }

    /// Returns an empty store that evicts the same counters for the same requests. It has a single shard, on which all
    /// threads wait.
    pub fn reproducible(options: MemoryOptions, clock: C) -> Self {
        let random = fastrand::Rng::with_seed(0);
        Self::of_shards([Shard::new(options.max_keys.max(1), options.grace_us, random)], clock)
    }

    fn of_shards(shards: impl IntoIterator<Item = Shard>, clock: C) -> Self {
        let shards = shards.into_iter().map(Mutex::new).collect();
        Self { shards, hasher: DefaultHashBuilder::default(), clock }
    }

    /// Decides at an explicit time; see [`Store::decide`].
    pub fn decide_at(&self, charges: &Charges, now_us: u64) -> Outcomes {
        let shard_indices: SmallVec<[usize; 2]> = charges.keys().map(|key| self.shard_index(key)).collect();
        let mut shards = self.lock(&shard_indices);
        let mut pending: SmallVec<[PendingCharge<'_>; 2]> = SmallVec::new();
        for (charge, &shard_index) in charges.iter().zip(&shard_indices) {
            let mut charge = PendingCharge::new(charge, shard_index, &mut shards, now_us);
            // An independent charge takes effect before the next one is decided.
            if charge.charge.is_independent() {
                charge.outcome = Some(charge.finish(false, &mut shards));
            }
            pending.push(charge);
        }
        let is_denied = charges.is_denied(|index| pending[index].verdict == Verdict::Over);
        let outcomes = pending.iter().map(|charge| match charge.outcome {
            Some(outcome) => outcome,
            None => charge.finish(is_denied, &mut shards),
        });
        let outcomes = outcomes.collect();
        for (_, shard) in &mut shards {
            shard.maintain(now_us);
        }
        outcomes
    }

    /// Replaces a counter at an explicit time; see [`Reset::replace`].
    pub fn replace_at(&self, key: &str, charge: &Charge, now_us: u64) -> Outcome {
        let shard_index = self.shard_index(key);
        let mut shards = self.lock(&[shard_index]);
        locked_shard(&mut shards, shard_index).remove(key);
        let outcome =
            PendingCharge::new((key, charge), shard_index, &mut shards, now_us).finish(false, &mut shards);
        locked_shard(&mut shards, shard_index).maintain(now_us);
        outcome
    }

    /// Returns the verdict on each charge at `now_us`. Changes nothing.
    pub fn verdicts_at(&self, charges: &Charges, now_us: u64) -> SmallVec<[Verdict; 2]> {
        let verdict = |(key, charge): (&str, &Charge)| {
            let shard = self.shards[self.shard_index(key)].lock();
            let state = shard.find(key).and_then(|entry| shard.state(entry));
            charge.kernel.verdict(state, Attempt { now_us, cost: charge.cost })
        };
        charges.iter().map(verdict).collect()
    }

    fn shard_index(&self, key: &str) -> usize {
        // Keys of one shard share a lock and a part of the bound, for which a fast hash with a random seed is good
        // enough. The map inside a shard has std's hasher: a client cannot construct collisions with it.
        let hash = self.hasher.hash_one(key);
        usize::try_from(hash % self.shards.len() as u64).unwrap_or(0)
    }

    /// Locks each shard once, in ascending order, so that two requests cannot deadlock.
    fn lock(&self, shard_indices: &[usize]) -> LockedShards<'_> {
        let mut sorted: SmallVec<[usize; 2]> = SmallVec::from_slice(shard_indices);
        sorted.sort_unstable();
        sorted.dedup();
        sorted.into_iter().map(|index| (index, self.shards[index].lock())).collect()
    }

    /// Removes some of the expired keys: each call scans only a fraction of each shard, so that it is short.
    pub fn sweep(&self) {
        let now_us = self.clock.now_us();
        for shard in &self.shards {
            shard.lock().sweep(now_us);
        }
    }

    pub fn stats(&self) -> MemoryStats {
        self.shards.iter().fold(MemoryStats::default(), |sum, shard| {
            let stats = shard.lock().stats();
            MemoryStats { keys: sum.keys + stats.keys, evictions: sum.evictions + stats.evictions }
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
        let remove = |key| self.shards[self.shard_index(key)].lock().remove(key);
        Ok(charges.keys().map(remove).collect())
    }

    async fn replace(&self, key: &str, charge: &Charge) -> Result<Outcome, StoreError> {
        Ok(self.replace_at(key, charge, self.clock.now_us()))
    }

    async fn slot_ends(&self, key: &str, now_us: u64) -> Result<Vec<u64>, StoreError> {
        let shard = self.shards[self.shard_index(key)].lock();
        Ok(match shard.find(key).and_then(|entry| shard.state(entry)) {
            Some(State::Slots(slots)) => slots.ends(now_us).take(SHOWN_SLOTS).collect(),
            _ => Vec::new(),
        })
    }
}

impl<C: Clock> Listing for MemoryStore<C> {
    /// The cursor is a shard, and how many of its entries are still to be listed. Going down, a removal moves no entry
    /// that is still to be listed: the last one fills the gap.
    async fn list(&self, start: &str, cursor: Option<&str>) -> Result<Option<KeyPage>, StoreError> {
        let parsed = cursor.map_or(Some((0, usize::MAX)), |cursor| {
            let (shard, below) = cursor.split_once(' ')?;
            Some((shard.parse().ok()?, below.parse().ok()?))
        });
        let Some((index, below)) = parsed else { return Ok(None) };
        let Some(shard) = self.shards.get(index) else { return Ok(None) };
        let (keys, below) = shard.lock().keys_below(below, start);
        let next = if below > 0 { Some((index, below)) } else { Some((index + 1, usize::MAX)) };
        let next = next.filter(|(index, _)| *index < self.shards.len());
        Ok(Some(KeyPage { keys, next: next.map(|(index, below)| format!("{index} {below}")) }))
    }
}

struct PendingCharge<'c> {
    charge: &'c Charge,
    key: &'c str,
    shard_index: usize,
    entry: Option<EntryIndex>,
    attempt: Attempt,
    verdict: Verdict,
    /// `None` until finished.
    outcome: Option<Outcome>,
}

impl<'c> PendingCharge<'c> {
    fn new(
        (key, charge): (&'c str, &'c Charge),
        shard_index: usize,
        shards: &mut LockedShards<'_>,
        now_us: u64,
    ) -> Self {
        let attempt = Attempt { now_us, cost: charge.cost };
        let shard = locked_shard(shards, shard_index);
        let entry = shard.find(key);
        let verdict = charge.kernel.verdict(entry.and_then(|entry| shard.state(entry)), attempt);
        Self { charge, key, shard_index, entry, attempt, verdict, outcome: None }
    }

    /// Records the charge if necessary, and returns its outcome.
    fn finish(&self, request_denied: bool, shards: &mut LockedShards<'_>) -> Outcome {
        let (kernel, shard) = (&self.charge.kernel, locked_shard(shards, self.shard_index));
        let changes = |entry| kernel.is_changed_by(shard.state(entry), self.attempt);
        let is_recorded = kernel.has_counter()
            && self.charge.is_recorded(self.verdict, request_denied)
            && self.entry.is_none_or(changes);
        let before = self.entry.filter(|_| is_recorded).and_then(|entry| shard.take(entry));
        let after = if is_recorded { kernel.recorded(before, self.attempt) } else { None };
        let state = after.as_ref().or_else(|| self.entry.and_then(|entry| shard.state(entry)));
        let reading = kernel.reading(state, self.attempt);
        let report = kernel.report(&reading, self.attempt, self.verdict);
        if let Some(after) = after {
            self.keep(after, report.remaining, shard);
        }
        let snapshot = CounterSnapshot { now_us: self.attempt.now_us, reading };
        Outcome { verdict: self.verdict, report, decided_by: DecidedBy::Store(snapshot) }
    }

    /// Stores the counter, or removes it if a refund has emptied it: an empty counter equals a missing one.
    fn keep(&self, after: State, remaining: u64, shard: &mut Shard) {
        let kernel = &self.charge.kernel;
        let worth = Worth {
            unused_from_us: kernel.unused_from_us(&after),
            used: used_share(kernel.max_cost(), remaining),
        };
        match self.entry {
            entry if worth.unused_from_us > self.attempt.now_us => shard.put(entry, self.key, after, worth),
            Some(entry) => shard.discard(entry),
            None => {}
        }
    }
}

/// Used share of a limit, in parts of [`EXHAUSTED`].
fn used_share(limit: u64, remaining: u64) -> u16 {
    let used = limit.saturating_sub(remaining);
    u16::try_from(u128::from(used) * u128::from(EXHAUSTED) / u128::from(limit.max(1))).unwrap_or(EXHAUSTED)
}

fn locked_shard<'l>(shards: &'l mut LockedShards<'_>, index: usize) -> &'l mut Shard {
    let found = shards.iter_mut().find(|(locked, _)| *locked == index);
    &mut found.expect("every shard of the request was locked before").1
}
