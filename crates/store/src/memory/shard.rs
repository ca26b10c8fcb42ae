//! One shard of the map: a bounded set of counters. A cursor moves over the entries and removes expired ones.

use std::hash::{BuildHasher, Hash, Hasher};
use std::num::NonZeroU32;

use engine::algorithm::State;
use engine::without_values;
use indexmap::IndexMap;
use smallvec::SmallVec;

/// Entries that the cursor passes after each decision.
const ENTRIES_PER_DECISION: usize = 2;
/// Entries compared to find the one to evict; Redis samples the same way for `volatile-ttl`.
const EVICTION_SAMPLE: usize = 16;
/// Entries that a list passes while it holds the shard's lock.
const LISTED_ENTRIES: usize = 500;
/// A sweep scans one in this many entries.
const SWEEP_FRACTION: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    pub keys: u64,
    /// Keys evicted from a full store since startup.
    pub evictions: u64,
}

/// Position of an entry; valid until an entry is removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryIndex(usize);

#[derive(Debug)]
struct CounterEntry {
    /// `None` while a decision has taken it, and for an entry that is removed when the decision ends.
    state: Option<State>,
    /// [`State::weight`] when the state was stored.
    weight: usize,
    /// [`Worth::unused_from_us`].
    unused_from_us: u64,
    /// [`Worth::used`].
    used: u16,
    /// Equal for the counters of one limit; `None` until an eviction needs it.
    limit: Option<NonZeroU32>,
}

/// What an eviction of the counter would lose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// From this time on, an eviction loses nothing.
    pub(super) unused_from_us: u64,
    /// Used share of the limit when the counter was recorded, in parts of [`EXHAUSTED`].
    pub(super) used: u16,
}

/// [`Worth::used`] of an exhausted counter.
pub(super) const EXHAUSTED: u16 = u16::MAX;

#[derive(Debug)]
pub(super) struct Shard {
    entries: IndexMap<Box<str>, CounterEntry>,
    /// Sum over all entries.
    weight: usize,
    max_weight: usize,
    grace_us: u64,
    cursor: usize,
    evictions: u64,
    /// Entries to remove when the current decision ends.
    discarded: Vec<usize>,
    random: fastrand::Rng,
}

impl Shard {
    pub(super) fn new(max_weight: usize, grace_us: u64, random: fastrand::Rng) -> Self {
        Self {
            entries: IndexMap::new(),
            weight: 0,
            max_weight,
            grace_us,
            cursor: 0,
            evictions: 0,
            discarded: Vec::new(),
            random,
        }
    }

    pub(super) fn find(&self, key: &str) -> Option<EntryIndex> {
        self.entries.get_index_of(key).map(EntryIndex)
    }

    /// Returns the keys that begin with `start` and end a part there, among the last [`LISTED_ENTRIES`] below this
    /// index, and where these entries begin.
    pub(super) fn keys_below(&self, below: usize, start: &str) -> (Vec<String>, usize) {
        let below = below.min(self.entries.len());
        let from = below.saturating_sub(LISTED_ENTRIES);
        let is_listed = |key: &&str| key.strip_prefix(start).is_some_and(|rest| rest.starts_with(['|', '}']));
        let keys =
            (from..below).filter_map(|index| self.entries.get_index(index)).map(|(key, _)| key.as_ref());
        (keys.filter(is_listed).map(str::to_owned).collect(), from)
    }

    pub(super) fn state(&self, entry: EntryIndex) -> Option<&State> {
        self.entries[entry.0].state.as_ref()
    }

    pub(super) fn take(&mut self, entry: EntryIndex) -> Option<State> {
        self.entries[entry.0].state.take()
    }

    /// Returns `true` if the key existed.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        self.entries.get_index_of(key).is_some_and(|index| {
            self.remove_at(index);
            true
        })
    }

    /// Removes an entry; the last entry moves to its index.
    fn remove_at(&mut self, index: usize) {
        if let Some((_, entry)) = self.entries.swap_remove_index(index) {
            self.weight -= entry.weight;
        }
    }

    pub(super) fn put(&mut self, index: Option<EntryIndex>, key: &str, state: State, worth: Worth) {
        let weight = state.weight();
        self.weight += weight;
        let Worth { unused_from_us, used } = worth;
        let entry = CounterEntry { state: Some(state), weight, unused_from_us, used, limit: None };
        if let Some(index) = index {
            let known = &mut self.entries[index.0];
            self.weight -= known.weight;
            *known = CounterEntry { limit: known.limit, ..entry };
        } else {
            self.entries.insert(key.into(), entry);
        }
    }

    /// Removes an entry whose state was taken, unless the request stores a state there before the next
    /// [`Shard::maintain`]: later charges of the request can use the entry again.
    pub(super) fn discard(&mut self, index: EntryIndex) {
        if !self.discarded.contains(&index.0) {
            self.discarded.push(index.0);
        }
    }

    /// Moves the cursor, and evicts until the weight is within its bound. The last counter always stays: a counter
    /// evicted after every request would admit every request. Invalidates every [`EntryIndex`].
    pub(super) fn maintain(&mut self, now_us: u64) {
        // The last entry moves to a removed entry's index. Going down from the highest index, no discarded entry moves.
        self.discarded.sort_unstable();
        while let Some(index) = self.discarded.pop() {
            if self.entries[index].state.is_none() {
                self.remove_at(index);
            }
        }
        self.remove_expired(ENTRIES_PER_DECISION, now_us);
        while self.weight > self.max_weight && self.entries.len() > 1 {
            self.evict(now_us);
        }
    }

    pub(super) fn sweep(&mut self, now_us: u64) {
        self.remove_expired(self.entries.len().div_ceil(SWEEP_FRACTION), now_us);
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    /// Moves the cursor over the next `count` entries and removes the expired ones.
    fn remove_expired(&mut self, count: usize, now_us: u64) {
        for _ in 0..count.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            if self.entries[self.cursor].unused_from_us.saturating_add(self.grace_us) <= now_us {
                // The last entry moves to the cursor and is the next one.
                self.remove_at(self.cursor);
            } else {
                self.cursor += 1;
            }
        }
    }

    /// Evicts the entry of a sample that loses least: the smallest used share, divided by the square of the number of
    /// counters that its limit has in the sample. A flood of values therefore evicts counters of the limit that it
    /// floods, even though it exhausts each of them, rather than the few counters of another limit.
    fn evict(&mut self, now_us: u64) {
        let len = self.entries.len();
        // At random: counters created together are neighbours, and may all be exhausted.
        let sampled = |step| {
            let index = if len > EVICTION_SAMPLE { self.random.usize(..len) } else { step };
            (index, self.limit(index))
        };
        let sample: SmallVec<[_; EVICTION_SAMPLE]> = (0..EVICTION_SAMPLE.min(len)).map(sampled).collect();
        let loss = |&(index, limit): &(usize, _)| {
            let of_limit = sample.iter().filter(|(_, other)| *other == limit).count();
            self.used_at(index, now_us) * EVICTION_SAMPLE.pow(2) / of_limit.pow(2)
        };
        if let Some(victim) = sample.iter().min_by_key(|sampled| loss(sampled)) {
            self.remove_at(victim.0);
            self.evictions += 1;
        }
    }

    /// Returns a hash that is equal for the counters of one limit.
    fn limit(&mut self, index: usize) -> Option<NonZeroU32> {
        if self.entries[index].limit.is_none()
            && let Some((key, _)) = self.entries.get_index(index)
        {
            let mut hasher = self.entries.hasher().build_hasher();
            without_values(key).for_each(|part| part.hash(&mut hasher));
            // The upper half of the hash fits.
            self.entries[index].limit = NonZeroU32::new((hasher.finish() >> 32) as u32);
        }
        self.entries[index].limit
    }

    /// Used share that an eviction of the entry would lose, in parts of [`EXHAUSTED`].
    fn used_at(&self, index: usize, now_us: u64) -> usize {
        let entry = &self.entries[index];
        if entry.unused_from_us > now_us { usize::from(entry.used) } else { 0 }
    }

    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats { keys: self.entries.len() as u64, evictions: self.evictions }
    }
}
