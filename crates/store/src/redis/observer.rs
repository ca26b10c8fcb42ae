//! What the Redis store reports for metrics and logs. Knows nothing of metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::StoreError;

use crate::breaker::BreakerState;

/// Receives the store's events. Called on the decision path, so it must be quick.
pub trait RedisObserver: Send + Sync + 'static {
    /// A batch of this many requests is sent.
    fn batch(&self, requests: usize);
    /// This many requests wait in the queues of all nodes, after requests left one of the queues.
    fn queue_depth(&self, requests: usize);
    /// The undo of a recorded charge failed, so the charge may stay until the counter expires. Until then its limit
    /// denies early.
    fn lost_undo(&self);
    /// A breaker changed its state.
    fn breaker(&self, transition: BreakerTransition<'_>);
}

/// A change of a breaker's state.
#[derive(Clone, Copy, Debug)]
pub struct BreakerTransition<'e> {
    /// The server, by its name in [`RedisStore::nodes`](super::RedisStore::nodes).
    pub node: &'e str,
    /// The state before.
    pub from: BreakerState,
    /// The state after.
    pub to: BreakerState,
    /// The failure that opened the breaker or keeps it open.
    pub cause: Option<&'e StoreError>,
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl RedisObserver for NoopObserver {
    fn batch(&self, _requests: usize) {}
    fn queue_depth(&self, _requests: usize) {}
    fn lost_undo(&self) {}
    fn breaker(&self, _transition: BreakerTransition<'_>) {}
}

impl<O: RedisObserver> RedisObserver for Arc<O> {
    fn batch(&self, requests: usize) {
        (**self).batch(requests);
    }

    fn queue_depth(&self, requests: usize) {
        (**self).queue_depth(requests);
    }

    fn lost_undo(&self) {
        (**self).lost_undo();
    }

    fn breaker(&self, transition: BreakerTransition<'_>) {
        (**self).breaker(transition);
    }
}

/// Reports each event to both observers.
impl<A: RedisObserver, B: RedisObserver> RedisObserver for (A, B) {
    fn batch(&self, requests: usize) {
        self.0.batch(requests);
        self.1.batch(requests);
    }

    fn queue_depth(&self, requests: usize) {
        self.0.queue_depth(requests);
        self.1.queue_depth(requests);
    }

    fn lost_undo(&self) {
        self.0.lost_undo();
        self.1.lost_undo();
    }

    fn breaker(&self, transition: BreakerTransition<'_>) {
        self.0.breaker(transition);
        self.1.breaker(transition);
    }
}

/// The queue depth of one node, reported as part of the sum over all nodes.
pub(crate) struct QueueDepth {
    observer: Arc<dyn RedisObserver>,
    /// Requests in the queue of this node.
    node: AtomicUsize,
    /// Requests in the queues of all nodes of the store.
    total: Arc<AtomicUsize>,
}

impl QueueDepth {
    /// For the first node of a store.
    pub(crate) fn new(observer: Arc<dyn RedisObserver>) -> Self {
        Self { observer, node: AtomicUsize::default(), total: Arc::default() }
    }

    /// For a further node of the same store.
    pub(crate) fn for_node(&self) -> Self {
        Self {
            observer: Arc::clone(&self.observer),
            node: AtomicUsize::default(),
            total: Arc::clone(&self.total),
        }
    }

    pub(crate) fn observer(&self) -> &Arc<dyn RedisObserver> {
        &self.observer
    }

    pub(crate) fn set(&self, requests: usize) {
        let before = self.node.swap(requests, Ordering::Relaxed);
        // A decrease wraps around in both operations, so the sum is right.
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

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct LastDepth(Mutex<usize>);

    impl RedisObserver for LastDepth {
        fn batch(&self, _requests: usize) {}
        fn queue_depth(&self, requests: usize) {
            *self.0.lock() = requests;
        }
        fn lost_undo(&self) {}
        fn breaker(&self, _transition: BreakerTransition<'_>) {}
    }

    #[test]
    fn the_queue_depth_is_the_sum_over_the_nodes_that_exist() {
        let last = Arc::new(LastDepth::default());
        let first = QueueDepth::new(Arc::clone(&last) as Arc<dyn RedisObserver>);
        let second = first.for_node();
        first.set(1);
        second.set(3);
        assert_eq!(*last.0.lock(), 4);
        first.set(2);
        assert_eq!(*last.0.lock(), 5);
        drop(second);
        assert_eq!(*last.0.lock(), 2, "the queue of a node ends with the node");
    }
}
