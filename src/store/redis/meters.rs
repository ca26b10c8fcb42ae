//! What the Redis store tells whoever measures it. Knows nothing of how it is counted.

/// Told of the store's work as it happens; must be quick.
pub trait Observer: Send + Sync + 'static {
    /// A batch of that many requests goes out.
    fn batch(&self, requests: usize);
    /// So many requests wait for a batch after one has been taken.
    fn queue_depth(&self, requests: usize);
}

/// Takes no note of anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn batch(&self, _requests: usize) {}
    fn queue_depth(&self, _requests: usize) {}
}
