//! The breaker before a server, and the probe that closes it. Knows how to ask the server whether it would decide;
//! knows nothing of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::batch::{self, Calls, Shared};
use super::cluster::{calls, slots};
use super::codec::Encoded;
use super::meters::{Observer, Turn};
use super::pool;
use crate::clock::monotonic;
use crate::engine::algorithm::{FixedWindow, Kernel};
use crate::engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, StoreError};
use crate::store::breaker::{Breaker, BreakerOptions, BreakerState};

/// As short as a window may be: a probe leaves nothing that is worth keeping.
const PROBE_WINDOW_US: u64 = 1;

/// Lets calls through, or says why not.
pub(super) struct Guard {
    /// `None` where it is switched off.
    breaker: Option<Mutex<Breaker>>,
    /// Whether calls go through: what every call looks at.
    is_shut: AtomicBool,
    /// Nobody asks any more; what still comes back changes nothing.
    is_retired: AtomicBool,
    opened: Notify,
    observer: Arc<dyn Observer>,
}

impl Guard {
    pub(super) fn new(options: Option<BreakerOptions>, observer: Arc<dyn Observer>) -> Self {
        let breaker = options.map(|options| Mutex::new(Breaker::new(options, fastrand::Rng::new())));
        Self {
            breaker,
            is_shut: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            opened: Notify::new(),
            observer,
        }
    }

    /// Whether a call may be made.
    pub(super) fn admit(&self) -> Result<(), StoreError> {
        if !self.is_shut.load(Ordering::Relaxed) {
            return Ok(());
        }
        let cause = self.breaker.as_ref().and_then(|breaker| breaker.lock().cause().cloned());
        cause.map_or(Ok(()), |cause| Err(StoreError::Open(cause)))
    }

    /// How a call ended. Why nobody is to ask any more, when that was one failure too many.
    pub(super) fn note(&self, result: Result<(), &StoreError>) -> Result<(), StoreError> {
        let Some(breaker) = self.breaker.as_ref().filter(|_| !self.is_retired.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        match result {
            Ok(()) => breaker.lock().succeeded(monotonic()),
            Err(cause) => {
                if breaker.lock().failed(monotonic(), cause) {
                    self.turned(Turn {
                        from: BreakerState::Closed,
                        to: BreakerState::Open,
                        cause: Some(cause),
                    });
                    self.opened.notify_one();
                    return self.admit();
                }
            }
        }
        Ok(())
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.lock().state())
    }

    /// The server is not asked any more, whatever state it is in.
    pub(super) fn retire(&self) {
        let from = self.state();
        self.is_retired.store(true, Ordering::Relaxed);
        if from != BreakerState::Closed {
            self.turned(Turn { from, to: BreakerState::Closed, cause: None });
        }
    }

    fn turned(&self, turn: Turn<'_>) {
        self.is_shut.store(turn.to != BreakerState::Closed, Ordering::Relaxed);
        self.observer.breaker(turn);
    }
}

/// Probes whenever the breaker is open, until it is dropped.
pub(super) async fn watch(shared: Arc<Shared>) {
    let guard = &shared.guard;
    let Some(breaker) = &guard.breaker else { return };
    loop {
        let due = breaker.lock().probe_at();
        let Some(due) = due else {
            guard.opened.notified().await;
            continue;
        };
        sleep_until(Instant::from_std(due)).await;
        breaker.lock().probing();
        guard.turned(Turn { from: BreakerState::Open, to: BreakerState::HalfOpen, cause: None });
        let result = probe(&shared).await;
        let failure = result.clone().err();
        let to = {
            let mut breaker = breaker.lock();
            breaker.probed(monotonic(), result);
            breaker.state()
        };
        guard.turned(Turn { from: BreakerState::HalfOpen, to, cause: failure.as_ref() });
    }
}

/// Whether the server decides: one decision of its own, by the way of all others.
async fn probe(shared: &Shared) -> Result<(), StoreError> {
    loop {
        let mut attempt = pool::connection(&shared.pool, Instant::now() + pool::PATIENCE).await?;
        let link = attempt.as_mut().map_err(|failure| failure.cause.clone())?;
        if !link.is_alive(shared.timeout).await {
            continue;
        }
        let deadline = Instant::now() + shared.timeout;
        let question = shared.probe.lock().clone();
        return match shared.calls {
            Calls::One => batch::decide(link, std::iter::once(&question), deadline).await.map(|_| ()),
            Calls::PerSlot => calls::probe(link, &question, deadline).await,
        };
    }
}

/// What a probe asks: a hit that is recorded whatever is there, because replicas and full servers read well enough. In a
/// cluster about a slot of the server's own, because what it says of others' does not show whether it decides.
pub(super) fn question(key_prefix: &str, slot: Option<u16>) -> Encoded {
    let mut charges = Charges::default();
    let hit = Charge {
        key: 0..0,
        kernel: Kernel::FixedWindow(FixedWindow { limit: 1, window_us: PROBE_WINDOW_US }),
        cost: Cost::take(1),
        charging: Charging::Postpaid,
        role: Role::NonBinding,
        on_store_failure: FailurePolicy::Error,
    };
    charges.push(hit, |key| match slot {
        Some(slot) => key.push_str(&format!("probe{{{}}}", slots::tag(slot))),
        None => key.push_str("probe"),
    });
    Encoded::new(&charges, key_prefix)
}
