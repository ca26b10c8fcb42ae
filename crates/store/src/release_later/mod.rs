//! Layer: releases slots later, if nobody else can.
//!
//! When a call is cancelled or the store is late, a slot may be recorded without an answer. Only this process can
//! release it. It waits first, because a release must not overtake its request. Ids differ, so a repeated release frees
//! nothing else. A failed release is sent again.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::algorithm::Kernel;
use engine::{Charges, Outcomes, Store, StoreError};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Most waiting slots. If there are more, the oldest stay until they end by themselves.
const MAX_WAITING: usize = 10_000;
/// Releases sent at once.
const MAX_SENT: usize = 64;
/// Pause after a failed release.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time in which a stopping process releases slots.
const STOP_WITHIN: Duration = Duration::from_millis(250);

/// A slot to release.
#[derive(Debug)]
struct Release {
    charges: Charges,
    /// When the slot ends by itself, at the latest.
    ends: Instant,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By the time from which they are sent, and a unique number.
    releases: BTreeMap<(Instant, u64), Release>,
    added: u64,
}

/// Slots to release later. Shared by all workers of a process.
#[derive(Debug, Default)]
pub struct Releases {
    waiting: Mutex<Waiting>,
    has_more: Notify,
    given_up: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseStats {
    /// Slots that wait to be released.
    pub waiting: u64,
    /// Slots since startup that were too many to wait.
    pub given_up: u64,
}

impl Releases {
    pub fn stats(&self) -> ReleaseStats {
        let waiting = self.waiting.lock().releases.len() as u64;
        ReleaseStats { waiting, given_up: self.given_up.load(Ordering::Relaxed) }
    }

    fn add(&self, due: Instant, release: Release) {
        let mut waiting = self.waiting.lock();
        if waiting.releases.len() >= MAX_WAITING {
            waiting.releases.pop_first();
            self.given_up.fetch_add(1, Ordering::Relaxed);
        }
        waiting.added += 1;
        let number = waiting.added;
        waiting.releases.insert((due, number), release);
        drop(waiting);
        self.has_more.notify_one();
    }

    fn next_due(&self) -> Option<Instant> {
        self.waiting.lock().releases.first_key_value().map(|((due, _), _)| *due)
    }

    /// Removes releases that are due at `now`, at most [`MAX_SENT`].
    fn take_due(&self, now: Instant) -> Vec<Release> {
        let mut waiting = self.waiting.lock();
        let due = std::iter::from_fn(|| {
            waiting.releases.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove())
        });
        due.take(MAX_SENT).collect()
    }
}

/// The layer. Requests without slots pass unchanged.
#[derive(Debug)]
pub struct ReleaseLater<S> {
    below: S,
    releases: Arc<Releases>,
    /// A request is decided within this time, or never.
    decided_within: Duration,
}

impl<S: Store> ReleaseLater<S> {
    /// `timeout`: deadline of the store below.
    pub fn new(below: S, releases: Arc<Releases>, timeout: Duration) -> Self {
        Self { below, releases, decided_within: 2 * timeout }
    }

    async fn decide_slots(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let cancelled = Cancelled { layer: self, charges };
        let result = self.below.decide(charges).await;
        mem::forget(cancelled);
        if let Err(error) = &result {
            self.add(charges, |index| error.outcome(index).err());
        }
        result
    }

    /// Adds slots of unanswered charges. `failure` returns why the charge at an index lacks an answer.
    fn add<'e>(&self, charges: &Charges, failure: impl Fn(usize) -> Option<&'e StoreError>) {
        let now = Instant::now();
        for (index, (key, charge)) in charges.iter().enumerate() {
            let (Kernel::Slots(kernel), Some(failure)) = (charge.kernel, failure(index)) else { continue };
            let is_take = charge.cost.taken() > 0 && !charge.cost.is_renewal();
            let wait = match charge.cost.grant() {
                Some(_) => RETRY,
                None if is_take && !failure.is_unseen() => self.decided_within,
                None => continue,
            };
            let ends = now + Duration::from_micros(kernel.hold_us);
            let mut charges = Charges::default();
            charges.push_apart(charge.release(), key);
            self.releases.add(now + wait, Release { charges, ends });
        }
    }
}

impl<S: Store> Store for ReleaseLater<S> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        if charges.values().all(|charge| charge.kernel.is_freed_by_time()) {
            return self.below.decide(charges).await;
        }
        // Boxed because this future would enlarge that of every decision.
        Box::pin(self.decide_slots(charges)).await
    }
}

/// Adds a request's slots if its future is dropped before the answer.
struct Cancelled<'l, S: Store> {
    layer: &'l ReleaseLater<S>,
    charges: &'l Charges,
}

impl<S: Store> Drop for Cancelled<'_, S> {
    fn drop(&mut self) {
        self.layer.add(self.charges, |_| Some(&StoreError::Timeout));
    }
}

/// Releases slots through `store` when they are due, until `stop`. Then it releases all within 250 ms.
pub async fn run<S: Store>(releases: Arc<Releases>, store: S, stop: CancellationToken) {
    loop {
        let due = async {
            match releases.next_due() {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = releases.has_more.notified() => {}
            () = due => {}
        }
        let now = Instant::now();
        for release in send(&store, releases.take_due(now)).await {
            if release.ends > now {
                releases.add(now + RETRY, release);
            }
        }
    }
    let all = async {
        // A failed one is not sent again.
        loop {
            let due = releases.take_due(Instant::now() + Duration::from_secs(3_600));
            if due.is_empty() {
                break;
            }
            send(&store, due).await;
        }
    };
    if timeout(STOP_WITHIN, all).await.is_err() {
        tracing::warn!("the store did not release all slots in time; they stay until they end");
    }
}

/// Returns the releases that failed.
async fn send<S: Store>(store: &S, due: Vec<Release>) -> Vec<Release> {
    let sent = due.into_iter().map(|release| async {
        let result = store.decide(&release.charges).await;
        result.is_err().then_some(release)
    });
    join_all(sent).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
