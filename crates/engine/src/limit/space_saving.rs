//! The keys with most hits in bounded memory: the Space-Saving algorithm (Metwally, Agrawal, El Abbadi 2005).
//!
//! With K places and N hits every key with more than N / K hits has a place; its count is too high by at most its
//! error, so its count without the error is never above the truth.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A key with a place, and the value that it got with the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeavyKey<V = ()> {
    /// The key.
    pub key: String,
    /// Hits, perhaps too many.
    pub count: u64,
    /// How much too high the count may be.
    pub error: u64,
    /// What the caller keeps with the key.
    pub value: V,
}

/// Counts hits of keys in a fixed number of places. Takes memory only for the keys that come.
#[derive(Clone, Debug)]
pub struct SpaceSaving<const PLACES: usize, V = ()> {
    keys: Vec<HeavyKey<V>>,
    /// The hash of each key.
    hashes: Vec<u64>,
    places: HashTable<usize>,
    hasher: DefaultHashBuilder,
    /// Not above the smallest count; places from the cursor on may have it.
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
    /// Counts a hit of `key`. `value` is called if the key gets a place.
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

    /// Gives the place of a key with the smallest count to `key`, whose count begins with that count.
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

    /// A place with the smallest count. Counts only grow, so one round over all places finds the next smallest count,
    /// and each place is looked at once per count: constant time on average.
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

    /// The keys with a place, in no order.
    #[must_use]
    pub fn keys(&self) -> &[HeavyKey<V>] {
        &self.keys
    }

    /// The same keys, to keep.
    #[must_use]
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
        /// Workers count apart, and their counts are read and begun anew many times.
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
