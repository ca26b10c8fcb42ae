//! When denials of a counter were last forgotten because units are given back. A denial that was sent before may be
//! received later; it must not be kept then.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters share these instants. Two counters in the same place cost each other a denial that is not kept.
const PLACES: usize = 256;

#[derive(Debug)]
pub(super) struct ForgottenDenials {
    hasher: RandomState,
    /// The instant after the last one at which denials were forgotten; 0 if none was.
    after_us: Box<[AtomicU64]>,
}

impl ForgottenDenials {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::new(), after_us: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Records that denials of the counter that were sent until now are void.
    pub(super) fn record(&self, key: &str, now_us: u64) {
        self.place(key).fetch_max(now_us.saturating_add(1), Ordering::SeqCst);
    }

    /// Whether a denial of the counter that was sent at this time is void.
    pub(super) fn is_void(&self, key: &str, sent_us: u64) -> bool {
        sent_us < self.place(key).load(Ordering::SeqCst)
    }

    fn place(&self, key: &str) -> &AtomicU64 {
        let hash = self.hasher.hash_one(key);
        &self.after_us[usize::try_from(hash % PLACES as u64).unwrap_or(0)]
    }
}
