//! Bounds partially received requests, in time and in total memory. Complete requests do not count, so a client that
//! fills the memory bound delays only requests that arrive in several pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time limit from a request's headers to its last byte. Callers send requests whole; Envoy by default waits 20 ms for
/// the answer.
pub(crate) const ARRIVES_WITHIN: Duration = Duration::from_secs(2);

/// Bytes of all unfinished requests of the process, and their bound. Clones share both.
#[derive(Clone, Debug)]
pub struct UnfinishedBytes(Arc<SharedBytes>);

#[derive(Debug)]
struct SharedBytes {
    held: AtomicUsize,
    max: usize,
}

/// Bytes held for one request; released on drop.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    all: UnfinishedBytes,
    bytes: usize,
}

impl UnfinishedBytes {
    pub fn new(max: usize) -> Self {
        Self(Arc::new(SharedBytes { held: AtomicUsize::new(0), max }))
    }

    pub(crate) fn hold_none(&self) -> HeldBytes {
        HeldBytes { all: self.clone(), bytes: 0 }
    }
}

impl HeldBytes {
    /// Raises the held bytes to `bytes`. Returns `false`, and changes nothing, if the bound does not allow it.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let shared = &self.all.0;
        let grown = shared.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(more).filter(|&held| held <= shared.max)
        });
        if grown.is_ok() {
            self.bytes += more;
        }
        grown.is_ok()
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.all.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_share_the_bound_and_return_their_bytes() {
        let all = UnfinishedBytes::new(10);
        let (mut first, mut second) = (all.hold_none(), all.hold_none());
        assert!(first.grow_to(4) && second.grow_to(6));
        assert!(!first.grow_to(5), "10 of 10 bytes are held");
        assert!(first.grow_to(4), "no more than before");
        drop(second);
        assert!(first.grow_to(10));
        drop(first);
        assert!(all.hold_none().grow_to(10));
        assert!(!all.hold_none().grow_to(usize::MAX));
    }
}
