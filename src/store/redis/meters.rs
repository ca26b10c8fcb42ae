//! What the Redis store tells whoever measures it. Knows nothing of how it is counted.

use crate::engine::StoreError;
use crate::store::breaker::BreakerState;

/// Told of the store's work as it happens; must be quick.
pub trait Observer: Send + Sync + 'static {
    /// A batch of that many requests goes out.
    fn batch(&self, requests: usize);
    /// So many requests wait for a batch after one has been taken.
    fn queue_depth(&self, requests: usize);
    /// A breaker changed.
    fn breaker(&self, turn: Turn<'_>);
}

/// A change of a breaker.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'e> {
    /// What it was.
    pub from: BreakerState,
    /// What it is.
    pub to: BreakerState,
    /// The failure that opened it, or that keeps it open.
    pub cause: Option<&'e StoreError>,
}

/// Takes no note of anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn batch(&self, _requests: usize) {}
    fn queue_depth(&self, _requests: usize) {}
    fn breaker(&self, _turn: Turn<'_>) {}
}
