//! Sorts requests by time within a window: a log has them in the order in which they ended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::simulate::report::Reordering;

/// The most requests that wait. More than this within the window are decided earlier: memory is bounded.
const MAX_WAITING: usize = 400_000;

/// A window of requests. Requests of the same time keep their order.
#[derive(Debug)]
pub(super) struct Sorter<T> {
    waiting: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The requests of `waiting`, and free places.
    requests: Vec<Option<T>>,
    free: Vec<usize>,
    next_number: u64,
    newest_us: u64,
    /// The time of the last request that was taken.
    taken_us: u64,
    pub reordering: Reordering,
}

impl<T> Sorter<T> {
    pub fn new(window_us: u64) -> Self {
        Self {
            waiting: BinaryHeap::new(),
            requests: Vec::new(),
            free: Vec::new(),
            next_number: 0,
            newest_us: 0,
            taken_us: 0,
            reordering: Reordering { window_us, ..Reordering::default() },
        }
    }

    pub fn push(&mut self, t_us: u64, request: T) {
        self.newest_us = self.newest_us.max(t_us);
        let place = match self.free.pop() {
            Some(place) => {
                self.requests[place] = Some(request);
                place
            }
            None => {
                self.requests.push(Some(request));
                self.requests.len() - 1
            }
        };
        self.waiting.push(Reverse((t_us, self.next_number, place)));
        self.next_number += 1;
    }

    /// The next request that no later line can come before, with its time.
    pub fn pop_ready(&mut self) -> Option<(u64, T)> {
        let Reverse((t_us, _, _)) = self.waiting.peek()?;
        if t_us.saturating_add(self.reordering.window_us) > self.newest_us {
            if self.waiting.len() <= MAX_WAITING {
                return None;
            }
            self.reordering.was_shortened = true;
        }
        self.pop()
    }

    /// The next request, at the end of the log.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse((t_us, _, place)) = self.waiting.pop()?;
        let request = self.requests[place].take()?;
        self.free.push(place);
        if t_us < self.taken_us {
            self.reordering.late += 1;
            self.reordering.most_late_us = self.reordering.most_late_us.max(self.taken_us - t_us);
        }
        self.taken_us = self.taken_us.max(t_us);
        Some((self.taken_us, request))
    }
}

#[cfg(test)]
mod tests {
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
            sorter.push(number as u64, ());
            while sorter.pop_ready().is_some() {}
            most = most.max(sorter.requests.len());
        }
        assert!(sorter.reordering.was_shortened);
        assert_eq!(most, MAX_WAITING + 1);
    }
}
