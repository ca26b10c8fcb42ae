//! One part of the map: keys with their states, bounded, with a hand that goes round and forgets what has run out.

use indexmap::IndexMap;

use super::Census;
use crate::engine::algorithm::State;

/// Slots that the hand looks at whenever a request has been decided here.
const LOOKS_PER_DECISION: usize = 2;
/// Slots that are compared to find the one to evict, as Redis samples for `volatile-ttl`.
const EVICTION_SAMPLE: usize = 16;
/// A sweep looks at one slot in that many.
const SWEEP_SHARE: usize = 16;

/// Where a key stands until something is removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

#[derive(Debug)]
struct Slot {
    /// `None` only while a decision has it in hand.
    state: Option<State>,
    fresh_at_us: u64,
    /// That of the state when it was put here.
    weight: usize,
}

#[derive(Debug)]
pub(super) struct Shard {
    slots: IndexMap<Box<str>, Slot>,
    /// Of all slots together.
    weight: usize,
    max_weight: usize,
    slack_us: u64,
    hand: usize,
    evictions: u64,
}

impl Shard {
    pub(super) fn new(max_weight: usize, slack_us: u64) -> Self {
        Self { slots: IndexMap::new(), weight: 0, max_weight, slack_us, hand: 0, evictions: 0 }
    }

    pub(super) fn find(&self, key: &str) -> Option<Place> {
        self.slots.get_index_of(key).map(Place)
    }

    pub(super) fn state(&self, place: Place) -> Option<&State> {
        self.slots[place.0].state.as_ref()
    }

    pub(super) fn take(&mut self, place: Place) -> Option<State> {
        self.slots[place.0].state.take()
    }

    /// Forgets a key. Tells whether it was there.
    pub(super) fn remove(&mut self, key: &str) -> bool {
        self.slots.get_index_of(key).is_some_and(|place| {
            self.remove_at(place);
            true
        })
    }

    /// The last slot takes its place.
    fn remove_at(&mut self, place: usize) {
        if let Some((_, slot)) = self.slots.swap_remove_index(place) {
            self.weight -= slot.weight;
        }
    }

    pub(super) fn put(&mut self, place: Option<Place>, key: &str, state: State, fresh_at_us: u64) -> Place {
        let weight = state.weight();
        self.weight += weight;
        let slot = Slot { state: Some(state), fresh_at_us, weight };
        if let Some(place) = place {
            self.weight -= self.slots[place.0].weight;
            self.slots[place.0] = slot;
            return place;
        }
        Place(self.slots.insert_full(key.into(), slot).0)
    }

    /// Moves the hand on, and evicts while there is too much, but never the last counter: one that is forgotten whenever it
    /// is asked would admit everybody. Places are void afterwards.
    pub(super) fn tidy(&mut self, now_us: u64) {
        self.forget(LOOKS_PER_DECISION, now_us);
        while self.weight > self.max_weight && self.slots.len() > 1 {
            self.evict();
        }
    }

    pub(super) fn sweep(&mut self, now_us: u64) {
        self.forget(self.slots.len().div_ceil(SWEEP_SHARE), now_us);
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }

    /// Looks at the next `looks` slots and removes those that have run out.
    fn forget(&mut self, looks: usize, now_us: u64) {
        for _ in 0..looks.min(self.slots.len()) {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            if self.slots[self.hand].fresh_at_us.saturating_add(self.slack_us) <= now_us {
                // The last slot moves here and is looked at next.
                self.remove_at(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    /// Gives up the one of the next few keys that loses least: the one that would soonest be as if never used.
    fn evict(&mut self) {
        let len = self.slots.len();
        let sample = (0..EVICTION_SAMPLE.min(len)).map(|step| (self.hand + step) % len);
        if let Some(victim) = sample.min_by_key(|&place| self.slots[place].fresh_at_us) {
            self.remove_at(victim);
            self.evictions += 1;
        }
        self.hand = (self.hand + EVICTION_SAMPLE) % len;
    }

    pub(super) fn census(&self) -> Census {
        Census { keys: self.slots.len() as u64, evictions: self.evictions }
    }
}
