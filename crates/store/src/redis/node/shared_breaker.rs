//! The breaker of a node, shared by its calls and its probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::StoreError;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::breaker::{Breaker, BreakerOptions, BreakerState};
use crate::observer::{BreakerTransition, Observer};

pub(super) struct SharedBreaker {
    /// Server name, for the observer.
    pub(super) node: String,
    breaker: Mutex<Breaker>,
    /// `true` while calls are refused. A copy of the breaker's state that calls read without its lock.
    refuses_calls: AtomicBool,
    /// The node left the cluster: late results are ignored.
    is_retired: AtomicBool,
    opened: Notify,
    observer: Arc<dyn Observer>,
}

impl SharedBreaker {
    pub(super) fn new(node: String, options: BreakerOptions, observer: Arc<dyn Observer>) -> Self {
        Self {
            node,
            breaker: Mutex::new(Breaker::new(options, fastrand::Rng::new())),
            refuses_calls: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            opened: Notify::new(),
            observer,
        }
    }

    /// Admits a call.
    ///
    /// # Errors
    /// [`StoreError::Open`] with the cause while the breaker is open.
    pub(super) fn admit(&self) -> Result<(), StoreError> {
        if !self.refuses_calls.load(Ordering::Relaxed) {
            return Ok(());
        }
        let cause = self.breaker.lock().cause().cloned();
        cause.map_or(Ok(()), |cause| Err(StoreError::Open(cause)))
    }

    /// Records the result of a call that was sent at `sent`.
    ///
    /// # Errors
    /// [`StoreError::Open`] if this result opened the breaker.
    pub(super) fn record(&self, sent: Instant, result: Result<(), &StoreError>) -> Result<(), StoreError> {
        if self.is_retired.load(Ordering::Relaxed) {
            return Ok(());
        }
        match result {
            Ok(()) => self.breaker.lock().record_success(now()),
            Err(cause) => {
                if self.breaker.lock().record_failure(sent.into_std(), now(), cause) {
                    self.change(BreakerState::Closed, BreakerState::Open, Some(cause));
                    self.opened.notify_one();
                    return self.admit();
                }
            }
        }
        Ok(())
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.lock().state()
    }

    /// The failure that opened the breaker or keeps it open; `None` while it is closed.
    pub(super) fn cause(&self) -> Option<Arc<StoreError>> {
        self.breaker.lock().cause().cloned()
    }

    /// Reports the breaker as closed, whatever its state: the node has left the cluster.
    pub(super) fn retire(&self) {
        let from = self.state();
        self.is_retired.store(true, Ordering::Relaxed);
        if from != BreakerState::Closed {
            self.change(from, BreakerState::Closed, None);
        }
    }

    /// Waits until a probe is due. The breaker is then half open until [`SharedBreaker::record_probe`].
    pub(super) async fn probe_due(&self) {
        loop {
            let probe_at = self.breaker.lock().probe_at();
            match probe_at {
                Some(probe_at) => break sleep_until(Instant::from_std(probe_at)).await,
                None => self.opened.notified().await,
            }
        }
        self.breaker.lock().start_probe();
        self.change(BreakerState::Open, BreakerState::HalfOpen, None);
    }

    /// Records the probe's result: the breaker closes, or opens again.
    pub(super) fn record_probe(&self, result: Result<(), StoreError>) {
        let failure = result.clone().err();
        let to = {
            let mut breaker = self.breaker.lock();
            breaker.record_probe(now(), result);
            breaker.state()
        };
        self.change(BreakerState::HalfOpen, to, failure.as_ref());
    }

    fn change(&self, from: BreakerState, to: BreakerState, cause: Option<&StoreError>) {
        self.refuses_calls.store(to != BreakerState::Closed, Ordering::Relaxed);
        self.observer.breaker(BreakerTransition { node: &self.node, from, to, cause });
    }
}

/// Tokio's clock, so that tests with paused time move the breaker as well.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::observer::NoopObserver;

    const MS: Duration = Duration::from_millis(1);

    /// Opens at the second failure, and sends its first probe after at most 25 ms.
    fn breaker() -> SharedBreaker {
        SharedBreaker::new(
            String::new(),
            BreakerOptions { failures: 2, ..BreakerOptions::default() },
            Arc::new(NoopObserver),
        )
    }

    fn open(breaker: &SharedBreaker) {
        assert_eq!(breaker.record(Instant::now(), Err(&StoreError::Timeout)), Ok(()));
        assert!(matches!(
            breaker.record(Instant::now(), Err(&StoreError::Timeout)),
            Err(StoreError::Open(_))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_refuses_calls_until_a_probe_succeeds() {
        let breaker = breaker();
        assert_eq!(breaker.admit(), Ok(()));
        open(&breaker);
        assert!(matches!(breaker.admit(), Err(StoreError::Open(_))));
        breaker.probe_due().await;
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        breaker.record_probe(Err(StoreError::Timeout));
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.probe_due().await;
        assert!(breaker.admit().is_err(), "a probe is in flight");
        breaker.record_probe(Ok(()));
        assert_eq!((breaker.admit(), breaker.state()), (Ok(()), BreakerState::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_is_due_after_the_pause_and_only_while_the_breaker_is_open() {
        let breaker = breaker();
        timeout(60_000 * MS, breaker.probe_due()).await.expect_err("it is closed");
        let waiting = async {
            breaker.probe_due().await;
            Instant::now()
        };
        let opening = async {
            open(&breaker);
            Instant::now()
        };
        let (due, opened) = tokio::join!(waiting, opening);
        assert!(due - opened >= 12 * MS && due - opened <= 26 * MS, "{:?}", due - opened);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retired_breaker_ignores_late_results() {
        let breaker = breaker();
        open(&breaker);
        breaker.retire();
        assert_eq!(breaker.admit(), Ok(()), "it no longer refuses");
        assert_eq!(breaker.record(Instant::now(), Err(&StoreError::Timeout)), Ok(()));
        assert_eq!(breaker.record(Instant::now(), Err(&StoreError::Timeout)), Ok(()));
    }
}
