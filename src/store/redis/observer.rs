//! What the Redis store tells whoever measures it. Knows nothing of how it is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::StoreError;
use crate::store::breaker::BreakerState;

/// Told of the store's work as it happens; must be quick.
pub trait RedisObserver: Send + Sync + 'static {
    /// A batch of that many requests goes out.
    fn batch(&self, requests: usize);
    /// So many requests wait for a batch after one has been taken, whatever server they are for.
    fn queue_depth(&self, requests: usize);
    /// A charge that was recorded should have been undone and may not have been: its limit denies a little early until
    /// the charge has run out.
    fn lost_undo(&self);
    /// A breaker changed.
    fn breaker(&self, turn: BreakerTransition<'_>);
}

/// A change of a breaker.
#[derive(Clone, Copy, Debug)]
pub struct BreakerTransition<'e> {
    /// What it was.
    pub from: BreakerState,
    /// What it is.
    pub to: BreakerState,
    /// The failure that opened it, or that keeps it open.
    pub cause: Option<&'e StoreError>,
}

/// Takes no note of anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl RedisObserver for NoopObserver {
    fn batch(&self, _requests: usize) {}
    fn queue_depth(&self, _requests: usize) {}
    fn lost_undo(&self) {}
    fn breaker(&self, _turn: BreakerTransition<'_>) {}
}

/// Tells both.
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

/// One lane's part in what the observer is told.
pub(crate) struct QueueDepth {
    observer: Arc<dyn RedisObserver>,
    /// What waits on this lane.
    own: AtomicUsize,
    /// What waits on all lanes of the store.
    all: Arc<AtomicUsize>,
}

impl QueueDepth {
    /// Of the first lane of a store.
    pub(crate) fn new(observer: Arc<dyn RedisObserver>) -> Self {
        Self { observer, own: AtomicUsize::default(), all: Arc::default() }
    }

    /// Of a further lane of the same store.
    pub(crate) fn for_node(&self) -> Self {
        Self { observer: Arc::clone(&self.observer), own: AtomicUsize::default(), all: Arc::clone(&self.all) }
    }

    pub(crate) fn observer(&self) -> &Arc<dyn RedisObserver> {
        &self.observer
    }

    pub(crate) fn set(&self, requests: usize) {
        let before = self.own.swap(requests, Ordering::Relaxed);
        // Wraps as the lane's own number goes down, and comes out right.
        let change = requests.wrapping_sub(before);
        let all = self.all.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        self.observer.queue_depth(all);
    }
}

impl Drop for QueueDepth {
    fn drop(&mut self) {
        self.all.fetch_sub(*self.own.get_mut(), Ordering::Relaxed);
    }
}
