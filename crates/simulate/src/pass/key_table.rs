//! Statistics of keys in bounded memory: exact until the table is full, then those of a uniform sample of the keys.
//!
//! Distinct sampling: a key is kept if its hash has at least `level` low zero bits. A full table raises the level and
//! so drops half of its keys. A kept key was kept since its first request, so its statistics are exact.

use hashbrown::HashMap;

use super::options::{mixed, text_hash};
use super::peaks::Peaks;
use super::tried::OverAt;
use crate::variants::MAX_VARIANTS;

/// Most keys, in about 210 MB: a table with 2^20 slots holds a few more.
const MAX_KEYS: usize = 900_000;

#[derive(Debug, Default)]
pub(super) struct KeyStatistics {
    /// Index of the limit.
    pub row: u32,
    pub asked: u32,
    pub units: u64,
    pub peaks: Peaks,
    /// The tried limits that the key has exceeded.
    pub over_at: OverAt,
    /// `true` if at least one of its requests had the rule's own limit.
    pub has_rule_number: bool,
    /// `None` until a limit was over, as the rules have it or as another algorithm: few keys are ever denied.
    pub denials: Option<Box<Denials>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Denials {
    pub key: Box<str>,
    pub over: u64,
    pub good_over: u64,
    pub in_force_over: u64,
    /// Requests over the limit as another algorithm, in the order of the variants.
    pub over_by_variant: [u64; MAX_VARIANTS],
    pub first_us: u64,
    pub last_us: u64,
    /// The first request over the limit since one fitted.
    pub since_us: Option<u64>,
    pub longest_us: u64,
}

#[derive(Debug)]
pub(super) struct KeyTable {
    /// By hash.
    keys: HashMap<u64, KeyStatistics>,
    level: u32,
    max_keys: usize,
}

/// The hash of a counter key for a limit's row. Two of ten million keys have the same 64 bits with a probability of 3
/// in a million.
pub(super) fn key_hash(row: usize, key: &str) -> u64 {
    mixed(text_hash(key) ^ mixed(row as u64 + 1))
}

impl KeyTable {
    pub fn new() -> Self {
        Self::with_max_keys(MAX_KEYS)
    }

    fn with_max_keys(max_keys: usize) -> Self {
        Self { keys: HashMap::new(), level: 0, max_keys }
    }

    /// Zero bits that the hash of a kept key has: keys are a sample of one in 2^level.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// How many keys a kept one stands for.
    pub fn weight(&self) -> u64 {
        1 << self.level
    }

    /// Counts the keys for which `holds` is true; an estimate if they are sampled.
    pub fn count(&self, holds: impl Fn(&KeyStatistics) -> bool) -> u64 {
        self.keys().filter(|key| holds(key)).count() as u64 * self.weight()
    }

    /// Counts the keys of one limit for which `holds` is true; an estimate if they are sampled.
    pub fn count_of(&self, row: usize, holds: impl Fn(&KeyStatistics) -> bool) -> u64 {
        self.count(|key| key.row as usize == row && holds(key))
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// `None` if the key is not in the sample.
    pub fn entry(&mut self, row: usize, hash: u64) -> Option<&mut KeyStatistics> {
        while hash.trailing_zeros() >= self.level && self.is_full() && !self.keys.contains_key(&hash) {
            self.level += 1;
            let level = self.level;
            self.keys.retain(|hash, _| hash.trailing_zeros() >= level);
            // Otherwise the slots of the dropped keys stay in use until the table doubles.
            self.keys.shrink_to_fit();
        }
        if hash.trailing_zeros() < self.level {
            return None;
        }
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        Some(self.keys.entry(hash).or_insert_with(|| KeyStatistics { row, ..KeyStatistics::default() }))
    }

    fn is_full(&self) -> bool {
        self.keys.len() >= self.max_keys
    }

    /// In arbitrary order.
    pub fn keys(&self) -> impl Iterator<Item = &KeyStatistics> {
        self.keys.values()
    }

    /// In arbitrary order.
    pub fn keys_of(&self, row: usize) -> impl Iterator<Item = &KeyStatistics> {
        self.keys().filter(move |key| key.row as usize == row)
    }
}

impl KeyStatistics {
    pub fn count_verdict(&mut self, is_over: bool, is_good: bool, t_us: u64, key: &str) {
        match (is_over, &mut self.denials) {
            (true, _) => {
                let denials = self.denials_mut(key);
                if denials.over == 0 {
                    denials.first_us = t_us;
                }
                denials.over += 1;
                denials.good_over += u64::from(is_good);
                denials.last_us = t_us;
                denials.since_us.get_or_insert(t_us);
            }
            (false, Some(denials)) => {
                if let Some(since_us) = denials.since_us.take() {
                    denials.longest_us = denials.longest_us.max(t_us - since_us);
                }
            }
            (false, None) => {}
        }
    }

    pub fn denials_mut(&mut self, key: &str) -> &mut Denials {
        self.denials.get_or_insert_with(|| Box::new(Denials { key: key.into(), ..Denials::default() }))
    }

    /// Requests over the candidate limit.
    pub fn over(&self) -> u64 {
        self.denials.as_ref().map_or(0, |denials| denials.over)
    }

    /// Requests over a variant of the candidate limit; over the limit itself for `None`.
    pub fn over_as(&self, variant: Option<usize>) -> u64 {
        let over =
            |denials: &Denials| variant.map_or(denials.over, |variant| denials.over_by_variant[variant]);
        self.denials.as_deref().map_or(0, over)
    }

    /// `true` if the key was over the candidate limit, and all its requests over it were good.
    pub fn is_over_good_only(&self) -> bool {
        self.denials.as_ref().is_some_and(|denials| denials.over > 0 && denials.over == denials.good_over)
    }

    pub fn is_newly_over(&self) -> bool {
        self.denials.as_ref().is_some_and(|denials| denials.over > 0 && denials.in_force_over == 0)
    }

    pub fn is_freed(&self) -> bool {
        self.denials.as_ref().is_some_and(|denials| denials.over == 0 && denials.in_force_over > 0)
    }
}

impl Denials {
    /// The longest time over the limit; an unfinished one lasts until its latest denial.
    pub fn longest_us(&self) -> u64 {
        let unfinished = self.since_us.map_or(0, |since_us| self.last_us - since_us);
        self.longest_us.max(unfinished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_keeps_a_sample_of_keys_with_exact_counts() {
        let mut table = KeyTable::with_max_keys(1_000);
        for _ in 0..3 {
            for key in 0..100_000 {
                let hash = key_hash(0, &format!("key {key}"));
                if let Some(statistics) = table.entry(0, hash) {
                    statistics.asked += 1;
                }
            }
        }
        assert!(table.len() <= 1_000 && table.level() >= 6, "{} {}", table.len(), table.level());
        assert!(table.keys().all(|key| key.asked == 3), "kept from the first request on");
        let estimate = table.len() as u64 * table.weight();
        assert!((85_000..115_000).contains(&estimate), "{estimate}");
    }

    #[test]
    fn denials_are_timed() {
        let mut key = KeyStatistics::default();
        for (t_us, is_over) in [(10, false), (20, true), (30, true), (50, false), (60, true), (65, true)] {
            key.count_verdict(is_over, t_us == 20, t_us, "k");
        }
        let denials = key.denials.as_ref().expect("denied");
        assert_eq!((denials.first_us, denials.last_us, denials.longest_us()), (20, 65, 30));
        assert_eq!((denials.over, denials.good_over), (4, 1));
        assert!(!key.is_over_good_only() && key.is_newly_over() && !key.is_freed());
    }

    #[test]
    fn the_keys_of_two_limits_are_different() {
        assert_ne!(key_hash(0, "a"), key_hash(1, "a"));
        assert_ne!(key_hash(0, "a"), key_hash(0, "b"));
    }
}
