//! Sorts requests by time within a window: a log has them in the order in which they ended.

use std::collections::{BTreeMap, VecDeque};

use crate::report::Reordering;

/// Requests waiting in the window. If there are more, the earliest are decided early, to bound memory.
const MAX_WAITING: usize = 400_000;
/// Requests are sorted in intervals of this length, once each: a quarter of a second.
const INTERVAL_US: u64 = 1 << 18;

/// Requests of the same time keep their order.
#[derive(Debug)]
pub(super) struct Sorter<T> {
    /// Requests later than those of `current`, by interval, in order of arrival.
    later: BTreeMap<u64, Vec<(u64, T)>>,
    /// The earliest requests, sorted.
    current: VecDeque<(u64, T)>,
    current_interval: u64,
    waiting: usize,
    newest_us: u64,
    /// The time of the last request taken.
    taken_us: u64,
    pub reordering: Reordering,
}

impl<T> Sorter<T> {
    pub fn new(window_us: u64) -> Self {
        Self {
            later: BTreeMap::new(),
            current: VecDeque::new(),
            current_interval: 0,
            waiting: 0,
            newest_us: 0,
            taken_us: 0,
            reordering: Reordering { window_us, ..Reordering::default() },
        }
    }

    pub fn push(&mut self, t_us: u64, request: T) {
        self.newest_us = self.newest_us.max(t_us);
        self.waiting += 1;
        let interval = t_us / INTERVAL_US;
        if interval <= self.current_interval {
            let place = self.current.partition_point(|(earlier_us, _)| *earlier_us <= t_us);
            self.current.insert(place, (t_us, request));
            return;
        }
        self.later.entry(interval).or_default().push((t_us, request));
    }

    /// The next request that no later line can precede, with its time.
    pub fn pop_ready(&mut self) -> Option<(u64, T)> {
        if self.current.is_empty() {
            let (interval, _) = self.later.first_key_value()?;
            if self.waits(interval.saturating_mul(INTERVAL_US)) {
                return None;
            }
            self.sort_next();
        }
        let (t_us, _) = self.current.front()?;
        if self.waits(*t_us) {
            return None;
        }
        self.reordering.was_shortened |= self.is_in_window(*t_us);
        self.pop()
    }

    /// The next request, at the end of the log.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        if self.current.is_empty() {
            self.sort_next();
        }
        let (t_us, request) = self.current.pop_front()?;
        self.waiting -= 1;
        if t_us < self.taken_us {
            self.reordering.late += 1;
            self.reordering.most_late_us = self.reordering.most_late_us.max(self.taken_us - t_us);
        }
        self.taken_us = self.taken_us.max(t_us);
        Some((self.taken_us, request))
    }

    /// `true` if the earliest request, with this time, has to wait.
    fn waits(&self, t_us: u64) -> bool {
        self.is_in_window(t_us) && self.waiting <= MAX_WAITING
    }

    fn is_in_window(&self, t_us: u64) -> bool {
        t_us.saturating_add(self.reordering.window_us) > self.newest_us
    }

    /// Makes the earliest interval the current one.
    fn sort_next(&mut self) {
        let Some((interval, requests)) = self.later.pop_first() else { return };
        self.current = requests.into();
        self.current.make_contiguous().sort_by_key(|(t_us, _)| *t_us);
        self.current_interval = interval;
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn sorted(window_us: u64, times: &[u64]) -> (Vec<(u64, usize)>, Reordering) {
        let mut sorter = Sorter::new(window_us);
        let mut taken = Vec::new();
        for (number, t_us) in times.iter().enumerate() {
            sorter.push(*t_us, number);
            taken.extend(std::iter::from_fn(|| sorter.pop_ready()));
        }
        taken.extend(std::iter::from_fn(|| sorter.pop()));
        (taken, sorter.reordering)
    }

    #[test]
    fn requests_within_the_window_are_sorted_and_equal_times_keep_their_order() {
        let (taken, reordering) = sorted(10, &[5, 3, 3, 9, 20, 12, 11]);
        assert_eq!(taken, [(3, 1), (3, 2), (5, 0), (9, 3), (11, 6), (12, 5), (20, 4)]);
        assert_eq!((reordering.late, reordering.most_late_us), (0, 0));
    }

    #[test]
    fn a_late_request_is_counted_and_decided_at_the_time_of_the_one_before_it() {
        let (taken, reordering) = sorted(10, &[100, 115, 98, 130, 99]);
        assert_eq!(taken, [(100, 0), (100, 2), (115, 1), (115, 4), (130, 3)]);
        assert_eq!((reordering.late, reordering.most_late_us), (2, 16));
    }

    #[test]
    fn the_number_of_waiting_requests_is_bounded() {
        let mut sorter = Sorter::new(u64::MAX);
        let mut most = 0;
        for number in 0..MAX_WAITING + 100 {
            sorter.push(number as u64 * 1_000, ());
            while sorter.pop_ready().is_some() {}
            most = most.max(sorter.waiting);
        }
        assert!(sorter.reordering.was_shortened);
        assert_eq!(most, MAX_WAITING);
    }

    /// A reference: a heap that always takes the earliest waiting request.
    fn sorted_by_heap(window_us: u64, times: &[u64]) -> Vec<(u64, usize)> {
        let (mut waiting, mut taken) = (BinaryHeap::new(), Vec::new());
        let (mut newest_us, mut taken_us) = (0, 0);
        for (number, t_us) in times.iter().enumerate() {
            newest_us = newest_us.max(*t_us);
            waiting.push(Reverse((*t_us, number)));
            while waiting.peek().is_some_and(|Reverse((t_us, _))| t_us + window_us <= newest_us) {
                taken.extend(waiting.pop());
            }
        }
        taken.extend(std::iter::from_fn(|| waiting.pop()));
        let take = |Reverse((t_us, number)): Reverse<(u64, usize)>| {
            taken_us = t_us.max(taken_us);
            (taken_us, number)
        };
        taken.into_iter().map(take).collect()
    }

    proptest! {
        #[test]
        fn requests_are_taken_as_from_a_heap(
            window_us in prop_oneof![Just(0), Just(1_000), Just(700_000), Just(5_000_000)],
            times in vec((0..8_u64, 0..900_000_u64), 0..300),
        ) {
            let times: Vec<u64> = times.into_iter().map(|(coarse, fine)| coarse * 600_000 + fine).collect();
            prop_assert_eq!(sorted(window_us, &times).0, sorted_by_heap(window_us, &times));
        }
    }
}
