//! Marks that are set once, in this process's memory.
//! [`RedisStore::mark_once`](crate::redis::RedisStore::mark_once) sets them for all processes.

use hashbrown::HashMap;

/// Identifies a mark.
pub type MarkId = [u8; 16];

/// Marks with their ends. About 4 MB if it is full.
const MAX_MARKS: usize = 100_000;

/// Marks of one process. If there are 100,000, the half that ends first is forgotten.
#[derive(Debug, Default)]
pub struct MemoryMarks(HashMap<MarkId, u64>);

impl MemoryMarks {
    /// Sets a mark for `for_us` microseconds. Returns `true` if it was not set. `now_us`: time of any one clock.
    pub fn mark_once(&mut self, id: &MarkId, now_us: u64, for_us: u64) -> bool {
        if self.is_set(id, now_us) {
            return false;
        }
        let Self(ends) = self;
        if ends.len() >= MAX_MARKS {
            let mut all: Vec<u64> = ends.values().copied().collect();
            let (_, middle, _) = all.select_nth_unstable(MAX_MARKS / 2);
            let (middle, mut is_kept) = (*middle, false);
            ends.retain(|_, end_us| {
                // Of marks with one end, each second one is kept.
                is_kept = !is_kept;
                *end_us > middle || *end_us == middle && is_kept
            });
        }
        ends.insert(*id, now_us.saturating_add(for_us));
        true
    }

    pub fn is_set(&self, id: &MarkId, now_us: u64) -> bool {
        self.0.get(id).is_some_and(|end_us| *end_us > now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_set_once_until_its_end() {
        let mut marks = MemoryMarks::default();
        let steps =
            [(0, 10, true), (9, 10, false), (10, 5, true), (14, 5, false), (15, 0, true), (15, 1, true)];
        for (now_us, for_us, is_set) in steps {
            assert_eq!(marks.is_set(&[1; 16], now_us), !is_set, "at {now_us}");
            assert_eq!(marks.mark_once(&[1; 16], now_us, for_us), is_set, "at {now_us}");
        }
        assert!(marks.mark_once(&[2; 16], 0, 1), "another mark");
    }

    #[test]
    fn a_full_map_forgets_the_marks_that_end_first() {
        for same_end in [false, true] {
            let mut marks = MemoryMarks::default();
            let id = |number: usize| u128::to_le_bytes(number as u128);
            let for_us = |number: usize| if same_end { 1_000_000 } else { number as u64 + 1 };
            for number in 0..=MAX_MARKS {
                assert!(marks.mark_once(&id(number), 0, for_us(number)));
            }
            let left = marks.0.len();
            assert!((MAX_MARKS / 2 - 1..=MAX_MARKS / 2 + 1).contains(&left), "{left} marks are left");
            assert!(!marks.mark_once(&id(MAX_MARKS), 0, 1), "the last one is kept");
        }
    }
}
