//! The bounded queue in which requests wait for a batch, shared by a node's batchers. First in, first out for each
//! caller; callers take turns, so that one with a thousand items does not delay another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::Caller;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::observer::Observer;

/// Up to this many callers have a lane each. More callers share lanes.
const LANES: usize = 256;

/// Below [`LANES`].
type LaneIndex = u8;

/// An empty lane keeps memory for this many items.
const KEPT_CAPACITY: usize = 64;

#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    arrived: Notify,
}

#[derive(Debug)]
struct Waiting<T> {
    /// Items taken before all lanes.
    first: VecDeque<T>,
    lanes: Vec<VecDeque<T>>,
    /// Lanes with items, in the order of their turns.
    turns: VecDeque<LaneIndex>,
    len: usize,
    bound: usize,
    closed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken<T> {
    /// The items that were due and are not stale.
    pub(super) items: Vec<T>,
    /// Stale items that came before the last of `items`, removed from the queue.
    pub(super) stale: Vec<T>,
    /// Items still waiting.
    pub(super) left: usize,
    /// `true` if the items exhaust the budget. Otherwise the queue is empty.
    pub(super) is_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Closed,
}

fn lane_of(caller: Caller) -> LaneIndex {
    caller.0.to_le_bytes()[0]
}

impl<T> Waiting<T> {
    fn new(bound: usize) -> Self {
        let lanes = std::iter::repeat_with(VecDeque::new).take(LANES).collect();
        Self { first: VecDeque::new(), lanes, turns: VecDeque::new(), len: 0, bound, closed: false }
    }

    fn push(&mut self, lane: LaneIndex, item: T) {
        let items = &mut self.lanes[usize::from(lane)];
        if items.is_empty() {
            self.turns.push_back(lane);
        }
        items.push_back(item);
        self.len += 1;
    }

    /// Makes room for an item of this lane: removes the newest item of the longest lane, if that lane is still the
    /// longest after the exchange.
    fn displace_for(&mut self, lane: LaneIndex) -> Option<T> {
        let length = |lane: LaneIndex| self.lanes[usize::from(lane)].len();
        let longest = self.turns.iter().copied().max_by_key(|&lane| length(lane))?;
        if length(longest) <= length(lane) + 1 {
            return None;
        }
        self.len -= 1;
        self.lanes[usize::from(longest)].pop_back()
    }

    /// The item to be taken next.
    fn next(&self) -> Option<&T> {
        self.first.front().or_else(|| self.lanes[usize::from(*self.turns.front()?)].front())
    }

    /// Takes the next item. `ends_turn`: `false` if the caller's next item can be taken in its place.
    fn take_next(&mut self, ends_turn: bool) -> Option<T> {
        let item = self.first.pop_front().or_else(|| self.take_from_lane(ends_turn))?;
        self.len -= 1;
        Some(item)
    }

    fn take_from_lane(&mut self, ends_turn: bool) -> Option<T> {
        let lane = &mut self.lanes[usize::from(*self.turns.front()?)];
        let item = lane.pop_front();
        if lane.is_empty() {
            lane.shrink_to(KEPT_CAPACITY);
            self.turns.pop_front();
        } else if ends_turn {
            self.turns.rotate_left(1);
        }
        item
    }
}

impl<T> Queue<T> {
    pub(super) fn new(bound: usize) -> Self {
        Self { waiting: Mutex::new(Waiting::new(bound)), arrived: Notify::new() }
    }

    /// Adds an item of this caller, or returns it with the reason. If the queue is full, the item can displace the
    /// newest item of the caller with the most items. Returns the displaced item.
    pub(super) fn push(&self, caller: Caller, item: T) -> Result<Option<T>, (Refusal, T)> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err((Refusal::Closed, item));
        }
        let lane = lane_of(caller);
        let mut displaced = None;
        if waiting.len >= waiting.bound {
            displaced = waiting.displace_for(lane);
            if displaced.is_none() {
                return Err((Refusal::Full, item));
            }
        }
        waiting.push(lane, item);
        drop(waiting);
        self.arrived.notify_one();
        Ok(displaced)
    }

    /// Adds an item that is taken before all callers' items. Returns the item if the queue holds as many as the greater
    /// of `bound` and its own bound.
    pub(super) fn push_first(&self, bound: usize, item: T) -> Result<(), (Refusal, T)> {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return Err((Refusal::Closed, item));
        }
        if waiting.len >= waiting.bound.max(bound) {
            return Err((Refusal::Full, item));
        }
        waiting.first.push_back(item);
        waiting.len += 1;
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.lock().len
    }

    /// Waits for an item. Returns `false` if the queue is closed and empty.
    pub(super) async fn ready(&self) -> bool {
        loop {
            {
                let waiting = self.waiting.lock();
                if waiting.len > 0 {
                    return true;
                }
                if waiting.closed {
                    break;
                }
            }
            self.arrived.notified().await;
        }
        // Wakes the next waiter, which then also returns `false`.
        self.arrived.notify_one();
        false
    }

    /// Takes items in turn until the sum of their weights reaches `budget`, but at least one. `weigh` returns `None`
    /// for a stale item, which is removed and returned in [`Taken::stale`].
    pub(super) fn take(&self, budget: usize, weigh: impl Fn(&T) -> Option<usize>) -> Taken<T> {
        let mut waiting = self.waiting.lock();
        let mut items = Vec::with_capacity(budget.min(waiting.len));
        let mut stale = Vec::new();
        let mut budget = budget;
        while let Some(weight) = waiting.next().map(&weigh) {
            let Some(weight) = weight else {
                stale.extend(waiting.take_next(false));
                continue;
            };
            if weight > budget && !items.is_empty() {
                break;
            }
            items.extend(waiting.take_next(true));
            budget = budget.saturating_sub(weight);
            if budget == 0 {
                break;
            }
        }
        let left = waiting.len;
        drop(waiting);
        if left > 0 {
            // One notification can stand for many arrivals.
            self.arrived.notify_one();
        }
        Taken { items, stale, left, is_full: budget == 0 || left > 0 }
    }

    /// Drops each caller's oldest items while they are stale. Returns the number of items left.
    pub(super) fn drop_stale(&self, is_stale: impl Fn(&T) -> bool) -> usize {
        let mut waiting = self.waiting.lock();
        let Waiting { first, lanes, turns, len, .. } = &mut *waiting;
        let mut drop_from = |items: &mut VecDeque<T>| {
            while items.front().is_some_and(&is_stale) {
                items.pop_front();
                *len -= 1;
            }
            !items.is_empty()
        };
        drop_from(first);
        turns.retain(|&lane| drop_from(&mut lanes[usize::from(lane)]));
        waiting.len
    }

    /// Changes how many items can wait. Items beyond the bound stay.
    pub(super) fn set_bound(&self, bound: usize) {
        self.waiting.lock().bound = bound;
    }

    /// Refuses new items. Waiting items can still be taken.
    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_one();
    }
}

/// Queue depth of one node, reported as part of the sum over all nodes.
pub(crate) struct QueueDepth {
    pub(super) observer: Arc<dyn Observer>,
    node: AtomicUsize,
    /// Requests in all queues of the store.
    total: Arc<AtomicUsize>,
}

impl QueueDepth {
    /// For the first node of a store.
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, node: AtomicUsize::default(), total: Arc::default() }
    }

    /// For another node of the same store.
    pub(crate) fn for_node(&self) -> Self {
        Self {
            observer: Arc::clone(&self.observer),
            node: AtomicUsize::default(),
            total: Arc::clone(&self.total),
        }
    }

    pub(crate) fn set(&self, requests: usize) {
        let before = self.node.swap(requests, Ordering::Relaxed);
        // A decrease wraps in both operations, so the sum is right.
        let change = requests.wrapping_sub(before);
        let total = self.total.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        self.observer.queue_depth(total);
    }
}

impl Drop for QueueDepth {
    fn drop(&mut self) {
        if *self.node.get_mut() > 0 {
            self.set(0);
        }
    }
}
