//! The queue in which requests wait for a batch: bounded, first in first out, shared by the batchers of a node.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A bounded queue of `T`.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    arrived: Notify,
}

#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<T>,
    bound: usize,
    closed: bool,
}

/// The result of one [`Queue::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken<T> {
    /// The oldest items that are not stale.
    pub(super) items: Vec<T>,
    /// Stale items that were older than the last of `items`. They are not in the queue any more.
    pub(super) stale: Vec<T>,
    /// How many items still wait.
    pub(super) left: usize,
    /// Whether the items use up the budget. If not, no item is left.
    pub(super) is_full: bool,
}

/// Why an item could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The queue holds as many items as its bound allows.
    Full,
    /// The queue is closed.
    Closed,
}

impl<T> Queue<T> {
    pub(super) fn new(bound: usize) -> Self {
        let waiting = Waiting { items: VecDeque::new(), bound, closed: false };
        Self { waiting: Mutex::new(waiting), arrived: Notify::new() }
    }

    /// Adds an item, or gives it back.
    pub(super) fn push(&self, item: T) -> Result<(), (Refusal, T)> {
        self.push_up_to(0, item)
    }

    /// Adds an item unless as many items wait as both this bound and the bound of the queue allow, or gives it back.
    pub(super) fn push_up_to(&self, bound: usize, item: T) -> Result<(), (Refusal, T)> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err((Refusal::Closed, item));
        }
        if waiting.items.len() >= waiting.bound.max(bound) {
            return Err((Refusal::Full, item));
        }
        waiting.items.push_back(item);
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().items.is_empty()
    }

    /// Waits until there is something to take. False when the queue is closed and empty.
    pub(super) async fn ready(&self) -> bool {
        loop {
            {
                let waiting = self.waiting.lock();
                if !waiting.items.is_empty() {
                    return true;
                }
                if waiting.closed {
                    break;
                }
            }
            self.arrived.notified().await;
        }
        // Wakes the next waiter, which then sees the end too.
        self.arrived.notify_one();
        false
    }

    /// Takes the oldest items until the sum of their weights reaches `budget`, but at least one. `weigh` returns `None`
    /// for a stale item, which is removed and returned apart.
    pub(super) fn take(&self, budget: usize, weigh: impl Fn(&T) -> Option<usize>) -> Taken<T> {
        let mut waiting = self.waiting.lock();
        let mut items = Vec::with_capacity(budget.min(waiting.items.len()));
        let mut stale = Vec::new();
        let mut budget = budget;
        while let Some(item) = waiting.items.pop_front() {
            let Some(weight) = weigh(&item) else {
                stale.push(item);
                continue;
            };
            if weight > budget && !items.is_empty() {
                waiting.items.push_front(item);
                break;
            }
            items.push(item);
            budget = budget.saturating_sub(weight);
            if budget == 0 {
                break;
            }
        }
        let left = waiting.items.len();
        drop(waiting);
        if left > 0 {
            // One notification may stand for many arrivals.
            self.arrived.notify_one();
        }
        Taken { items, stale, left, is_full: budget == 0 || left > 0 }
    }

    /// Drops items from the front while they are stale. Returns how many items still wait.
    pub(super) fn drop_stale(&self, is_stale: impl Fn(&T) -> bool) -> usize {
        let mut waiting = self.waiting.lock();
        while waiting.items.front().is_some_and(&is_stale) {
            waiting.items.pop_front();
        }
        waiting.items.len()
    }

    /// Changes how many items may wait. Items beyond the bound stay.
    pub(super) fn set_bound(&self, bound: usize) {
        self.waiting.lock().bound = bound;
    }

    /// Refuses further items. Items that wait may still be taken.
    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_and_keeps_the_order() {
        let queue = Queue::new(2);
        assert_eq!((queue.push(1), queue.push(2)), (Ok(()), Ok(())));
        assert_eq!(queue.push(3), Err((Refusal::Full, 3)));
        assert!(queue.ready().await);
        assert_eq!(
            queue.take(1, |_| Some(1)),
            Taken { items: vec![1], stale: vec![], left: 1, is_full: true }
        );
        assert_eq!(
            queue.take(9, |_| Some(1)),
            Taken { items: vec![2], stale: vec![], left: 0, is_full: false }
        );
        queue.set_bound(1);
        assert_eq!((queue.push(4), queue.push(5)), (Ok(()), Err((Refusal::Full, 5))));
        assert_eq!((queue.push_up_to(2, 6), queue.push_up_to(2, 7)), (Ok(()), Err((Refusal::Full, 7))));
    }

    #[tokio::test]
    async fn stale_items_are_removed_and_do_not_use_the_budget() {
        let queue = Queue::new(9);
        for item in 0..6 {
            assert_eq!(queue.push(item), Ok(()));
        }
        let taken = queue.take(2, |item| (item % 2 == 1).then_some(1));
        assert_eq!(taken, Taken { items: vec![1, 3], stale: vec![0, 2], left: 2, is_full: true });
        assert_eq!(queue.drop_stale(|item| *item < 5), 1);
        assert_eq!(queue.take(9, |_| Some(1)).items, vec![5]);
    }

    #[tokio::test]
    async fn an_item_over_the_budget_is_taken_alone_and_in_its_turn() {
        let queue = Queue::new(9);
        for item in [2, 3, 9, 1] {
            assert_eq!(queue.push(item), Ok(()));
        }
        let take = || {
            let taken = queue.take(5, |item| Some(*item));
            (taken.items, taken.is_full)
        };
        let taken = [take(), take(), take(), take()];
        assert_eq!(taken, [(vec![2, 3], true), (vec![9], true), (vec![1], false), (vec![], false)]);
    }

    #[tokio::test]
    async fn closing_wakes_all_waiters() {
        let queue = Queue::<u8>::new(1);
        let close = async { queue.close() };
        let (first, second, ()) = tokio::join!(queue.ready(), queue.ready(), close);
        assert!(!first && !second);
        assert_eq!(queue.push(1), Err((Refusal::Closed, 1)));
    }
}
