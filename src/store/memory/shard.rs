//! One part of the map: counters by key, bounded. A cursor moves over the entries and removes expired ones.

use indexmap::IndexMap;

use crate::engine::algorithm::State;

/// Entries over which the cursor moves after each decision.
const ENTRIES_PER_DECISION: usize = 2;
/// Entries that are compared to find the one to evict; Redis samples the same way for `volatile-ttl`.
const EVICTION_SAMPLE: usize = 16;
/// A sweep moves the cursor over one in this many entries.
const SWEEP_FRACTION: usize = 16;

/// What a memory store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Keys now.
    pub keys: u64,
    /// Keys evicted from a full store since the start.
    pub evictions: u64,
}

/// The position of an entry; valid until an entry is removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryIndex(usize);

#[derive(Debug)]
struct CounterEntry {
    /// `None` while a decision has taken it, and for an entry that the decision removes at its end.
    state: Option<State>,
    worth: Worth,
    /// [`State::weight`] when the state was put here.
    weight: usize,
}

/// What is lost if a counter is evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worth {
    /// From this time on nothing is lost.
    pub(super) unused_from_us: u64,
    /// The used share of the limit when the counter was recorded, in parts of [`EXHAUSTED`].
    pub(super) used: u16,
}

/// [`Worth::used`] of a counter that has nothing left.
pub(super) const EXHAUSTED: u16 = u16::MAX;

impl Worth {
    /// The counter with the lowest rank is evicted. First of all, counters of which little is used: evicting one
    /// returns few units. Of two such counters, the one that is unused sooner. Of two exhausted counters, the one that
    /// is unused later: otherwise a flood of values that each use up a limit of a day would evict, and so lift, all
    /// limits of a minute.
    fn rank(self, now_us: u64) -> (u16, u64) {
        match self {
            Self { unused_from_us, .. } if unused_from_us <= now_us => (0, 0),
            Self { unused_from_us, used: EXHAUSTED } => (EXHAUSTED, u64::MAX - unused_from_us),
            Self { unused_from_us, used } => (used, unused_from_us),
        }
    }
}

#[derive(Debug)]
pub(super) struct Shard {
    entries: IndexMap<Box<str>, CounterEntry>,
    /// Sum over all entries.
    weight: usize,
    max_weight: usize,
    grace_us: u64,
    cursor: usize,
    evictions: u64,
    /// Entries to remove at the end of the current decision.
    discarded: Vec<usize>,
}

impl Shard {
    pub(super) fn new(max_weight: usize, grace_us: u64) -> Self {
        Self {
            entries: IndexMap::new(),
            weight: 0,
            max_weight,
            grace_us,
            cursor: 0,
            evictions: 0,
            discarded: Vec::new(),
        }
    }

    pub(super) fn find(&self, key: &str) -> Option<EntryIndex> {
        self.entries.get_index_of(key).map(EntryIndex)
    }

    pub(super) fn state(&self, entry: EntryIndex) -> Option<&State> {
        self.entries[entry.0].state.as_ref()
    }

    pub(super) fn take(&mut self, entry: EntryIndex) -> Option<State> {
        self.entries[entry.0].state.take()
    }

    /// Removes a key. Returns whether it existed.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        self.entries.get_index_of(key).is_some_and(|index| {
            self.remove_at(index);
            true
        })
    }

    /// Removes an entry; the last entry takes its index.
    fn remove_at(&mut self, index: usize) {
        if let Some((_, entry)) = self.entries.swap_remove_index(index) {
            self.weight -= entry.weight;
        }
    }

    pub(super) fn put(&mut self, index: Option<EntryIndex>, key: &str, state: State, worth: Worth) {
        let weight = state.weight();
        self.weight += weight;
        let entry = CounterEntry { state: Some(state), worth, weight };
        if let Some(index) = index {
            self.weight -= self.entries[index.0].weight;
            self.entries[index.0] = entry;
        } else {
            self.entries.insert(key.into(), entry);
        }
    }

    /// Removes an entry whose state was taken with the next [`Shard::maintain`], unless a state is put there before:
    /// the request may use this entry again, and further ones.
    pub(super) fn discard(&mut self, index: EntryIndex) {
        if !self.discarded.contains(&index.0) {
            self.discarded.push(index.0);
        }
    }

    /// Moves the cursor, and evicts until the weight is within its bound. The last counter always stays: a counter
    /// that is evicted after every request would admit every request. Invalidates every [`EntryIndex`].
    pub(super) fn maintain(&mut self, now_us: u64) {
        // The last entry takes the place of a removed one: from the highest index down, no discarded entry moves.
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
            if self.entries[self.cursor].worth.unused_from_us.saturating_add(self.grace_us) <= now_us {
                // The last entry moves to the cursor and is the next one.
                self.remove_at(self.cursor);
            } else {
                self.cursor += 1;
            }
        }
    }

    /// Removes the entry that loses least, of the next few at the cursor.
    fn evict(&mut self, now_us: u64) {
        let len = self.entries.len();
        let sample = (0..EVICTION_SAMPLE.min(len)).map(|step| (self.cursor + step) % len);
        if let Some(victim) = sample.min_by_key(|&index| self.entries[index].worth.rank(now_us)) {
            self.remove_at(victim);
            self.evictions += 1;
        }
        self.cursor = (self.cursor + EVICTION_SAMPLE) % len;
    }

    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats { keys: self.entries.len() as u64, evictions: self.evictions }
    }
}
