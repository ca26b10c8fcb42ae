//! The keys with most denials in bounded memory: the Space-Saving algorithm (Metwally, Agrawal, El Abbadi 2005).
//!
//! With K places and N denials every key with more than N / K denials has a place; its count is too high by at most its
//! error.

use hashbrown::HashMap;

/// Places of one limit.
const PLACES: usize = 1_024;

/// A key with a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeavyKey {
    pub key: Box<str>,
    pub count: u64,
    /// How much too high the count may be.
    pub error: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SpaceSaving {
    keys: Vec<HeavyKey>,
    places: HashMap<Box<str>, usize>,
    /// Not above the smallest count; places from the cursor on may have it.
    smallest: u64,
    cursor: usize,
}

impl SpaceSaving {
    pub fn count(&mut self, key: &str) {
        if let Some(place) = self.places.get(key) {
            self.keys[*place].count += 1;
            return;
        }
        if self.keys.len() < PLACES {
            self.places.insert(key.into(), self.keys.len());
            self.keys.push(HeavyKey { key: key.into(), count: 1, error: 0 });
            return;
        }
        let place = self.smallest_place();
        let error = self.keys[place].count;
        self.places.remove(&self.keys[place].key);
        self.places.insert(key.into(), place);
        self.keys[place] = HeavyKey { key: key.into(), count: error + 1, error };
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

    pub fn keys(&self) -> &[HeavyKey] {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut counter = SpaceSaving::default();
        for number in 0..10_000_u64 {
            counter.count(&format!("{}", number % 100));
        }
        assert!(counter.keys().iter().all(|key| key.count == 100 && key.error == 0));
    }

    #[test]
    fn a_heavy_key_among_many_has_a_place_and_a_bounded_error() {
        let mut counter = SpaceSaving::default();
        let (mut total, mut heavy) = (0, 0);
        for number in 0..100_000_u64 {
            counter.count(&format!("light {number}"));
            total += 1;
            if number % 50 == 0 {
                counter.count("heavy");
                (total, heavy) = (total + 1, heavy + 1);
            }
        }
        assert!(heavy > total / PLACES as u64);
        let found = counter.keys().iter().find(|key| &*key.key == "heavy").expect("a place");
        assert!(found.count >= heavy && found.count - found.error <= heavy, "{found:?}");
        assert!(found.error <= total / PLACES as u64);
        assert_eq!(counter.keys().iter().map(|key| key.count).sum::<u64>(), total);
    }
}
