//! Finds the keys with the most hits in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi 2005).
//!
//! With K slots and N hits, every key with more than N / K hits has a slot. A count exceeds the truth by at most its
//! error, so count minus error never does.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A key in a slot, with the value that it got on entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyKey<V = ()> {
    pub key: String,
    /// Hits, possibly overestimated.
    pub count: u64,
    /// How much `count` may be too high.
    pub error: u64,
    /// Kept for the caller.
    pub value: V,
}

/// Counts hits per key in a fixed number of slots, which are allocated as keys arrive.
#[derive(Clone, Debug)]
pub struct SpaceSaving<const PLACES: usize, V = ()> {
    keys: Vec<HeavyKey<V>>,
    /// Hash of each key, in the order of `keys`.
    hashes: Vec<u64>,
    places: HashTable<usize>,
    hasher: DefaultHashBuilder,
    /// At most the smallest count. Only slots from the cursor on can still have it.
    smallest: u64,
    cursor: usize,
}

impl<const PLACES: usize, V> Default for SpaceSaving<PLACES, V> {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            hashes: Vec::new(),
            places: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            smallest: 0,
            cursor: 0,
        }
    }
}

impl<const PLACES: usize, V> SpaceSaving<PLACES, V> {
    /// Counts a hit of `key`. Calls `value` if the key gets a new slot.
    pub fn count(&mut self, key: &str, value: impl FnOnce() -> V) {
        let hash = self.hasher.hash_one(key);
        if let Some(place) = self.places.find(hash, |place| self.keys[*place].key == key) {
            self.keys[*place].count += 1;
            return;
        }
        let place = if self.keys.len() < PLACES {
            self.keys.push(HeavyKey { key: key.to_owned(), count: 1, error: 0, value: value() });
            self.hashes.push(hash);
            self.keys.len() - 1
        } else {
            self.replace_smallest(key, hash, value())
        };
        self.places.insert_unique(hash, place, |place| self.hashes[*place]);
    }

    /// Gives the slot with the smallest count to `key`, which starts from that count.
    fn replace_smallest(&mut self, key: &str, hash: u64, value: V) -> usize {
        let place = self.smallest_place();
        let old_hash = std::mem::replace(&mut self.hashes[place], hash);
        if let Ok(old) = self.places.find_entry(old_hash, |other| *other == place) {
            old.remove();
        }
        let kept = &mut self.keys[place];
        kept.key.clear();
        kept.key.push_str(key);
        (kept.error, kept.count, kept.value) = (kept.count, kept.count + 1, value);
        place
    }

    /// Returns a slot with the smallest count. Counts only grow, so one pass over all slots finds the next smallest
    /// count, and each slot is visited once per count: constant time on average.
    fn smallest_place(&mut self) -> usize {
        loop {
            while self.cursor < self.keys.len() {
                if self.keys[self.cursor].count <= self.smallest {
                    return self.cursor;
                }
                self.cursor += 1;
            }
            self.cursor = 0;
            self.smallest = self.keys.iter().map(|key| key.count).min().unwrap_or(0);
        }
    }

    /// In no particular order.
    pub fn keys(&self) -> &[HeavyKey<V>] {
        &self.keys
    }

    pub fn into_keys(self) -> Vec<HeavyKey<V>> {
        self.keys
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PLACES: usize = 1_024;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut counter = SpaceSaving::<PLACES, _>::default();
        for number in 0..10_000_u64 {
            counter.count(&format!("{}", number % 100), || number);
        }
        assert!(counter.keys().iter().all(|key| key.count == 100 && key.error == 0 && key.value < 100));
    }

    #[test]
    fn a_heavy_key_among_many_has_a_place_and_a_bounded_error() {
        let mut counter = SpaceSaving::<PLACES, _>::default();
        let (mut total, mut heavy) = (0, 0);
        for number in 0..100_000_u64 {
            counter.count(&format!("light {number}"), || ());
            total += 1;
            if number % 50 == 0 {
                counter.count("heavy", || ());
                (total, heavy) = (total + 1, heavy + 1);
            }
        }
        assert!(heavy > total / PLACES as u64);
        let found = counter.keys().iter().find(|key| &*key.key == "heavy").expect("a place");
        assert!(found.count >= heavy && found.count - found.error <= heavy, "{found:?}");
        assert!(found.error <= total / PLACES as u64);
        assert_eq!(counter.keys().iter().map(|key| key.count).sum::<u64>(), total);
    }

    proptest! {
        /// Workers count separately, and their counts are read and reset many times.
        #[test]
        fn lower_bounds_of_several_counters_add_up_to_at_most_the_truth(
            hits in proptest::collection::vec((0..2_usize, 0..12_u8, any::<bool>()), 0..400),
        ) {
            let mut workers = [SpaceSaving::<4>::default(), SpaceSaving::default()];
            let (mut truth, mut bounds) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
            let mut drain = |worker: &mut SpaceSaving<4>| {
                for HeavyKey { key, count, error, .. } in std::mem::take(worker).into_keys() {
                    *bounds.entry(key).or_default() += count - error;
                }
            };
            for (worker, key, drains) in hits {
                let key = format!("{}", key * key / 12);
                workers[worker].count(&key, || ());
                *truth.entry(key).or_default() += 1;
                if drains {
                    drain(&mut workers[worker]);
                }
            }
            workers.iter_mut().for_each(drain);
            for (key, bound) in &bounds {
                prop_assert!(bound <= &truth[key], "{key}: {bound} of {truth:?}");
            }
        }
    }
}
