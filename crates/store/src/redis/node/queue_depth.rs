//! How many requests wait in the queues of all nodes of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::observer::Observer;

/// The queue depth of one node, reported as part of the sum over all nodes.
pub(crate) struct QueueDepth {
    observer: Arc<dyn Observer>,
    /// Requests in the queue of this node.
    node: AtomicUsize,
    /// Requests in the queues of all nodes of the store.
    total: Arc<AtomicUsize>,
}

impl QueueDepth {
    /// For the first node of a store.
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
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

    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
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

    #[derive(Debug, Default)]
    struct LastDepth(Mutex<usize>);

    impl Observer for LastDepth {
        fn queue_depth(&self, requests: usize) {
            *self.0.lock() = requests;
        }
    }

    #[test]
    fn the_queue_depth_is_the_sum_over_the_nodes_that_exist() {
        let last = Arc::new(LastDepth::default());
        let first = QueueDepth::new(Arc::clone(&last) as Arc<dyn Observer>);
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
