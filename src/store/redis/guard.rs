//! The breaker before a server, and the probe that closes it. Knows how to ask the server whether it would decide;
//! knows nothing of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redis::Cmd;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::batch::Shared;
use super::meters::{Observer, Turn};
use super::pool;
use crate::clock::monotonic;
use crate::engine::StoreError;
use crate::store::breaker::{Breaker, BreakerOptions, BreakerState};

/// How long what a probe writes is kept, milliseconds: not at all, but Redis knows no less.
const PROBE_KEPT_MS: u32 = 1;

/// Lets calls through, or says why not.
pub(super) struct Guard {
    /// `None` where it is switched off.
    breaker: Option<Mutex<Breaker>>,
    /// Whether calls go through: what every call looks at.
    is_shut: AtomicBool,
    opened: Notify,
    observer: Arc<dyn Observer>,
}

impl Guard {
    pub(super) fn new(options: Option<BreakerOptions>, observer: Arc<dyn Observer>) -> Self {
        let breaker = options.map(|options| Mutex::new(Breaker::new(options, fastrand::Rng::new())));
        Self { breaker, is_shut: AtomicBool::new(false), opened: Notify::new(), observer }
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
        let Some(breaker) = &self.breaker else { return Ok(()) };
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

/// Whether the server would decide: a write, because replicas and full servers read well enough.
async fn probe(shared: &Shared) -> Result<(), StoreError> {
    loop {
        let mut attempt = pool::connection(&shared.pool, Instant::now() + pool::PATIENCE).await?;
        let link = attempt.as_mut().map_err(|failure| failure.cause.clone())?;
        if !link.is_alive().await {
            continue;
        }
        let mut write = Cmd::new();
        write.arg("PSETEX").arg(&shared.probe_key).arg(PROBE_KEPT_MS).arg("");
        let answer = link.ask::<()>(&write, Instant::now() + shared.timeout).await;
        return answer.map_err(StoreError::from);
    }
}
