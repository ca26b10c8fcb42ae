//! The one home of the clocks. Everything that needs the time is given it, or is given a [`Clock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since the Unix epoch, unless the clock says otherwise.
    fn now_us(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
    fn now_us(&self) -> u64 {
        // A machine whose clock stands before 1970 counts from there; states only ever move forward from it.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
    }
}

/// The machine's monotonic clock, for spans: microseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock(Instant);

impl Default for MonotonicClock {
    fn default() -> Self {
        Self(monotonic())
    }
}

impl Clock for MonotonicClock {
    fn now_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands where it is put.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now_us`.
    #[must_use]
    pub fn at(now_us: u64) -> Self {
        Self(AtomicU64::new(now_us))
    }

    /// Moves the clock, forward or back.
    pub fn set(&self, now_us: u64) {
        self.0.store(now_us, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now_us(&self) -> u64 {
        self.as_ref().now_us()
    }
}

/// A reading of the monotonic clock, for durations.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
pub fn monotonic() -> Instant {
    Instant::now()
}
