//! Where requests wait for a batch: bounded, first come first served, shared by all batchers of a worker.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A bounded queue of `T`.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    bound: usize,
    arrived: Notify,
}

#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// Why nothing could be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// So much waits as may wait.
    Full,
    /// Nothing is taken out any more.
    Closed,
}

impl<T> Queue<T> {
    pub(super) fn new(bound: usize) -> Self {
        let waiting = Waiting { items: VecDeque::new(), closed: false };
        Self { waiting: Mutex::new(waiting), bound, arrived: Notify::new() }
    }

    /// Adds an item, or gives it back.
    pub(super) fn push(&self, item: T) -> Result<(), (Refusal, T)> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err((Refusal::Closed, item));
        }
        if waiting.items.len() >= self.bound {
            return Err((Refusal::Full, item));
        }
        waiting.items.push_back(item);
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
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
        // The others are to see it too.
        self.arrived.notify_one();
        false
    }

    /// Takes the oldest items until their weights come to `budget`, but at least one; drops those it passes that have
    /// no weight. Also returns how many are left.
    pub(super) fn take(&self, budget: usize, weigh: impl Fn(&T) -> Option<usize>) -> (Vec<T>, usize) {
        let mut waiting = self.waiting.lock();
        let mut taken = Vec::with_capacity(budget.min(waiting.items.len()));
        let mut left = budget;
        while let Some(item) = waiting.items.pop_front() {
            let Some(weight) = weigh(&item) else { continue };
            if weight > left && !taken.is_empty() {
                waiting.items.push_front(item);
                break;
            }
            taken.push(item);
            left = left.saturating_sub(weight);
            if left == 0 {
                break;
            }
        }
        let left = waiting.items.len();
        drop(waiting);
        if left > 0 {
            // One notice may have stood for many arrivals.
            self.arrived.notify_one();
        }
        (taken, left)
    }

    /// Nothing is added from now on; what waits may still be taken.
    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_bounded_and_keeps_the_order() {
        let queue = Queue::new(2);
        assert_eq!((queue.push(1), queue.push(2)), (Ok(()), Ok(())));
        assert_eq!(queue.push(3), Err((Refusal::Full, 3)));
        assert!(queue.ready().await);
        assert_eq!(queue.take(1, |_| Some(1)), (vec![1], 1));
        assert_eq!(queue.take(9, |_| Some(1)), (vec![2], 0));
    }

    #[tokio::test]
    async fn what_is_not_worth_keeping_does_not_count() {
        let queue = Queue::new(9);
        for item in 0..6 {
            assert_eq!(queue.push(item), Ok(()));
        }
        assert_eq!(queue.take(2, |item| (item % 2 == 1).then_some(1)), (vec![1, 3], 2));
    }

    #[tokio::test]
    async fn heavy_items_go_alone_and_keep_their_place() {
        let queue = Queue::new(9);
        for item in [2, 3, 9, 1] {
            assert_eq!(queue.push(item), Ok(()));
        }
        let take = || queue.take(5, |item| Some(*item)).0;
        assert_eq!([take(), take(), take(), take()], [vec![2, 3], vec![9], vec![1], vec![]]);
    }

    #[tokio::test]
    async fn closing_wakes_everyone_who_waits() {
        let queue = Queue::<u8>::new(1);
        let close = async { queue.close() };
        let (first, second, ()) = tokio::join!(queue.ready(), queue.ready(), close);
        assert!(!first && !second);
        assert_eq!(queue.push(1), Err((Refusal::Closed, 1)));
    }
}
