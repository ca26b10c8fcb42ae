//! Maps values to tiers, a million values in 11 MB: nearly every look-up reads one cache line (`Bucket`).
//!
//! Stores hashes instead of values. A false match, with a probability of 5e-14 per look-up, gives a tier to a value
//! that has none. Hashes are SipHash-1-3 with a random key, so nobody can choose values that fill one bucket.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::mem::size_of;
use std::num::NonZeroU16;

/// Slots per bucket: eight words are a cache line.
const SLOTS: usize = 8;
/// A table uses three quarters of its slots: 10.7 MB for a million values.
const USED_SLOTS: usize = 6;
/// Bits of a slot that hold the mark.
const MARK_BITS: u32 = 16;
/// Values per chunk of a builder. Chunks are freed while the table is filled.
const CHUNK: usize = 65_536;

/// The number stored for a value, 1 to 65,535. The owner of the table gives it a meaning.
pub type TierMark = NonZeroU16;

/// One cache line of slots, each with 48 bits of a value's hash and its [`TierMark`]. Slots fill from the first on; an
/// empty one is 0. Overflow goes to the next bucket. For a million values, 17 bits of the hash select the bucket, so a
/// slot holds all the others.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; SLOTS]);

/// The values of one key in one domain, or in every domain. Equal names make equal spaces in all tables with the same
/// hash keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space(u64);

/// The domain of rows that apply to every domain.
pub(super) const EVERY_DOMAIN: &str = "*";

/// Immutable.
#[derive(Clone, Debug)]
pub struct TierTable {
    buckets: Vec<Bucket>,
    len: usize,
    hashing: RandomState,
}

#[derive(Debug, Default)]
pub struct TierTableBuilder {
    hashing: RandomState,
    /// Each space, with that of the same key in every domain.
    spaces: Vec<(Space, Space)>,
    chunks: Vec<Vec<AddedRow>>,
    /// By the hash of a value to which rows of another value also apply: the XOR difference to the other's hash.
    spellings: HashMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
struct AddedRow {
    hash: u64,
    space: u32,
    mark: TierMark,
}

/// The effect of one added row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Added {
    /// The value's mark now; the row's own if another row wins.
    pub mark: TierMark,
    /// The mark of a later row for the same value, which wins.
    pub replaced_by: Option<TierMark>,
    /// The value's mark in the previous table.
    pub before: Option<TierMark>,
}

impl Default for TierTable {
    fn default() -> Self {
        TierTableBuilder::new(&RandomState::new()).build(None, |_, _| false, |_| {})
    }
}

impl TierTable {
    /// The space of the values of `key` in `domain`.
    pub fn space(&self, domain: &str, key: &str) -> Space {
        space(&self.hashing, domain, key)
    }

    /// `None` if the value has no row.
    pub fn get(&self, space: Space, value: &str) -> Option<TierMark> {
        self.mark_of(hash(&self.hashing, space, value))
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory of the buckets.
    pub fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// The keys of the hash. Only tables with the same keys can be compared.
    pub fn hashing(&self) -> &RandomState {
        &self.hashing
    }

    fn mark_of(&self, hash: u64) -> Option<TierMark> {
        let tag = hash << MARK_BITS;
        let mut at = self.bucket_of(hash);
        loop {
            let Bucket(slots) = self.buckets[at];
            // An empty slot has the mark 0, which is not a mark.
            if let Some(slot) = slots.into_iter().find(|slot| (slot ^ tag) >> MARK_BITS == 0)
                && let Some(mark) = mark_in(slot)
            {
                return Some(mark);
            }
            if slots[SLOTS - 1] == 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Stores the mark, or returns the one that the value already has.
    fn insert(&mut self, hash: u64, mark: TierMark) -> Option<TierMark> {
        let tag = hash << MARK_BITS;
        let mut at = self.bucket_of(hash);
        loop {
            for slot in &mut self.buckets[at].0 {
                if *slot == 0 {
                    *slot = tag | u64::from(mark.get());
                    self.len += 1;
                    return None;
                }
                if (*slot ^ tag) >> MARK_BITS == 0 {
                    return mark_in(*slot);
                }
            }
            at = self.after(at);
        }
    }

    /// Selects the bucket by the upper bits of the hash.
    fn bucket_of(&self, hash: u64) -> usize {
        let product = u128::from(hash) * self.buckets.len() as u128;
        // Exact: the upper half of the product is less than the number of buckets.
        (product >> u64::BITS) as usize
    }

    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }
}

impl TierTableBuilder {
    /// Starts a table with these hash keys.
    pub fn new(hashing: &RandomState) -> Self {
        Self { hashing: hashing.clone(), ..Self::default() }
    }

    /// Adds a space for the values of `key` in `domain`; `*` is every domain. Spaces are numbered from 0 in the order
    /// of these calls.
    pub fn add_space(&mut self, domain: &str, key: &str) -> Space {
        let own = space(&self.hashing, domain, key);
        self.spaces.push((own, space(&self.hashing, EVERY_DOMAIN, key)));
        own
    }

    /// Adds a row for a value in the space with this number. The later of two rows for one value wins.
    pub fn add(&mut self, space: usize, value: &str, mark: TierMark) {
        let hash = hash(&self.hashing, self.spaces[space].0, value);
        // A table has few spaces.
        let row = AddedRow { hash, space: u32::try_from(space).unwrap_or(u32::MAX), mark };
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(row),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(row);
                self.chunks.push(chunk);
            }
        }
    }

    /// Adds a row for a value to which the rows of `other` also apply: it gets the mark of a later row of its file for
    /// `other`.
    pub fn add_spelling(&mut self, space: usize, value: &str, other: &str, mark: TierMark) {
        let [own, of_other] = [value, other].map(|value| hash(&self.hashing, self.spaces[space].0, value));
        self.spellings.insert(own, own ^ of_other);
        self.add(space, value, mark);
    }

    /// Number of values added, including repeated ones.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Builds the table and calls `on_added` for each row, last row first. `previous` must have the same
    /// [`TierTable::hashing`]. A row for one domain gets the mark of a later row of its file for every domain;
    /// `are_of_one_file` decides by their marks if two rows belong to one file.
    pub fn build(
        self,
        previous: Option<&TierTable>,
        are_of_one_file: impl Fn(TierMark, TierMark) -> bool,
        mut on_added: impl FnMut(Added),
    ) -> TierTable {
        // At least one bucket, so that a look-up always has one to read. At three quarters full, a slot is always free.
        let buckets = vec![Bucket([0; SLOTS]); self.len() / USED_SLOTS + 1];
        let mut table = TierTable { buckets, len: 0, hashing: self.hashing };
        // By space: the difference between a row's hash and that of the same value in every domain, if it has rows
        // there.
        let to_every_domain: Vec<Option<u64>> = self
            .spaces
            .iter()
            .map(|(own, every)| {
                let has_rows = own != every && self.spaces.iter().any(|(other, _)| other == every);
                has_rows.then_some(own.0 ^ every.0)
            })
            .collect();
        // From the last row backwards: whatever is in the table already is later.
        for AddedRow { hash, space, mark } in
            self.chunks.into_iter().rev().flat_map(|chunk| chunk.into_iter().rev())
        {
            let of_file = |later: &TierMark| are_of_one_file(mark, *later);
            let to_every_domain = to_every_domain[space as usize];
            let for_every_domain =
                |hash: u64| to_every_domain.and_then(|mask| table.mark_of(hash ^ mask)).filter(of_file);
            let for_spelling = |mask: &u64| {
                let other = hash ^ mask;
                table.mark_of(other).filter(of_file).or_else(|| for_every_domain(other))
            };
            let spelling = || self.spellings.get(&hash).and_then(for_spelling);
            let mark = for_every_domain(hash).or_else(spelling).unwrap_or(mark);
            let replaced_by = table.insert(hash, mark);
            let before = previous.and_then(|previous| previous.mark_of(hash));
            on_added(Added { mark, replaced_by, before });
        }
        table
    }
}

fn space(hashing: &RandomState, domain: &str, key: &str) -> Space {
    Space(hashing.hash_one((domain, key)))
}

/// The hashes of one value in two spaces differ by the XOR of the spaces.
fn hash(hashing: &RandomState, Space(space): Space, value: &str) -> u64 {
    hashing.hash_one(value) ^ space
}

fn mark_in(slot: u64) -> Option<TierMark> {
    // Exact: the lower 16 bits.
    TierMark::new(slot as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mark(number: u16) -> TierMark {
        TierMark::new(number).expect("not 0")
    }

    fn table(rows: &[(&str, &str, u16)], previous: &TierTable) -> (TierTable, Vec<Added>) {
        let mut builder = TierTableBuilder::new(previous.hashing());
        for (space, (key, value, number)) in rows.iter().enumerate() {
            builder.add_space("llm", key);
            builder.add(space, value, mark(*number));
        }
        let mut added = Vec::new();
        (builder.build(Some(previous), |_, _| true, |row| added.push(row)), added)
    }

    #[test]
    fn an_empty_table_has_no_value() {
        let table = TierTable::default();
        assert_eq!(table.get(table.space("", ""), ""), None);
        assert!(table.is_empty());
    }

    #[test]
    fn a_value_belongs_to_its_key_and_its_domain() {
        let (table, _) = table(&[("tenant", "acme", 1), ("user", "acme", 2)], &TierTable::default());
        let get = |domain: &str, key: &str, value: &str| table.get(table.space(domain, key), value);
        assert_eq!(get("llm", "tenant", "acme"), Some(mark(1)));
        assert_eq!(get("llm", "user", "acme"), Some(mark(2)));
        for (domain, key, value) in
            [("llm", "tenant", "acm"), ("edge", "tenant", "acme"), ("llm", "acme", "")]
        {
            assert_eq!(get(domain, key, value), None, "{domain} {key} {value}");
        }
        // The boundary between the names matters.
        assert_ne!(table.space("ab", "c"), table.space("a", "bc"));
    }

    #[test]
    fn a_builder_tells_what_became_of_each_row() {
        let (old, _) = table(
            &[("tenant", "same", 1), ("tenant", "moved", 1), ("tenant", "gone", 1)],
            &TierTable::default(),
        );
        let rows = [
            ("tenant", "same", 1),
            ("tenant", "moved", 2),
            ("tenant", "new", 3),
            ("tenant", "new", u16::MAX),
        ];
        let (new, added) = table(&rows, &old);
        let expected = [
            (u16::MAX, None, None),
            (3, Some(mark(u16::MAX)), None),
            (2, None, Some(mark(1))),
            (1, None, Some(mark(1))),
        ];
        assert_eq!(
            added,
            expected.map(|(number, replaced_by, before)| Added { mark: mark(number), replaced_by, before })
        );
        assert_eq!((new.len(), new.get(new.space("llm", "tenant"), "new")), (3, Some(mark(u16::MAX))));
    }

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    proptest! {
        #[test]
        fn a_table_equals_a_map(
            rows in prop::collection::vec((0..3_u8, 0..2_000_u32, 1..=u16::MAX), 0..4_000),
            asked in prop::collection::vec((0..3_u8, 0..2_500_u32), 1..200),
        ) {
            let keys = ["tenant", "user", ""];
            let mut builder = TierTableBuilder::new(&RandomState::new());
            for key in keys {
                builder.add_space("llm", key);
            }
            let mut map = HashMap::new();
            for (key, value, number) in &rows {
                builder.add(usize::from(*key), &value.to_string(), mark(*number));
                map.insert((*key, *value), mark(*number));
            }
            let table = builder.build(None, |_, _| true, |_| {});
            prop_assert_eq!(table.len(), map.len());
            for asked in asked.into_iter().chain(map.keys().copied()) {
                let space = table.space("llm", keys[usize::from(asked.0)]);
                prop_assert_eq!(table.get(space, &asked.1.to_string()), map.get(&asked).copied());
            }
        }

        /// A full table is the worst case: each bucket overflows to the next one, and the last to the first.
        #[test]
        fn full_buckets_overflow_to_the_next(hashes in prop::collection::vec((0..4_u64, 0..40_u64), 1..60)) {
            // Eight buckets; half of the hashes select the last.
            let mut table = TierTable { buckets: vec![Bucket([0; SLOTS]); 8], ..TierTable::default() };
            let mut map = HashMap::new();
            for (number, (upper, lower)) in hashes.into_iter().enumerate() {
                let hash = ((4 + upper) << 61) | (upper << 6) | lower;
                let number = mark(u16::try_from(number + 1).expect("few rows"));
                prop_assert_eq!(table.insert(hash, number), map.get(&hash).copied());
                map.entry(hash).or_insert(number);
            }
            for (hash, number) in &map {
                prop_assert_eq!(table.mark_of(*hash), Some(*number));
            }
            prop_assert_eq!(table.mark_of(63), None);
            prop_assert_eq!(table.len(), map.len());
        }
    }
}
