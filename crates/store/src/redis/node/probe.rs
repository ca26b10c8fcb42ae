//! Probes the server while the breaker is open, until a probe succeeds.

use std::convert::Infallible;
use std::sync::Arc;

use engine::algorithm::{FixedWindow, Kernel, SlidingLog};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::calls;
use super::calls::QueuedRequest;
use super::state::NodeState;
use crate::redis::connect::{checkout, checkout_timeout};
use crate::redis::script::{EncodedRequest, RequestReply};
use crate::redis::slot::tag_for_slot;

/// Long enough for several round trips. Redis keeps a probe's counter one or two seconds longer.
const PROBE_WINDOW_US: u64 = 10_000_000;

/// The first hit of a probe creates its counter, the second changes it.
const PROBE_HITS: usize = 2;

/// More than a probe takes from a log.
const PROBE_LOG_LIMIT: u64 = 10;

/// Sends a probe whenever one is due.
pub(super) async fn run(node: Arc<NodeState>) -> Infallible {
    loop {
        node.breaker.probe_due().await;
        let result = probe(&node).await;
        node.breaker.record_probe(result);
    }
}

/// Has the server decide a probe's hits, with the script and the connections that requests use.
async fn probe(node: &NodeState) -> Result<(), StoreError> {
    loop {
        let mut pooled = checkout(&node.pool, Instant::now() + checkout_timeout(&node.target)).await?;
        let connection = pooled.as_mut().map_err(|failure| failure.cause.clone())?;
        if !connection.is_alive(node.timeout).await {
            continue;
        }
        let request = probe_request(&node.key_prefix, *node.probe_slot.lock());
        // A window can end between the hits. Such a probe, one in thousands, does not check changes.
        for _ in 0..PROBE_HITS {
            let deadline = Instant::now() + node.timeout;
            // Only the result counts, so nobody receives the answer.
            let (reply, _) = oneshot::channel();
            let queued = QueuedRequest { encoded: request.clone(), mode: node.probe_mode, deadline, reply };
            let calls = calls::send(connection, vec![queued], deadline, false).await;
            calls::health(&calls).unwrap_or(Ok(())).map_err(Clone::clone)?;
        }
        return Ok(());
    }
}

/// Returns a hit on a new counter, to be sent [`PROBE_HITS`] times. It writes, because a replica or a server without
/// memory still answers reads. Twice, because the script creates a counter with a different command than it changes one
/// with, and the server may allow only one of them. In a cluster the key is in one of the node's slots, because a
/// redirect would count as success.
pub(super) fn probe_request(key_prefix: &str, slot: Option<u16>) -> EncodedRequest {
    let window = FixedWindow::new(u64::from(u32::MAX), PROBE_WINDOW_US);
    encoded(key_prefix, &probe_key(slot), Kernel::FixedWindow(window), Cost::take(1))
}

/// Returns a new counter's key, without the prefix.
fn probe_key(slot: Option<u16>) -> String {
    let tag = slot.map_or_else(String::new, |slot| format!("{{{}}}", tag_for_slot(slot)));
    format!("probe{tag}/{:016x}", fastrand::u64(..))
}

fn encoded(key_prefix: &str, key: &str, kernel: Kernel, cost: Cost) -> EncodedRequest {
    let (charging, role, on_store_failure) = (Charging::Postpaid, Role::IdleQuota, FailurePolicy::Error);
    let mut charges = Charges::default();
    charges.push(Charge { kernel, cost, charging, role, on_store_failure }, |text| text.push_str(key));
    EncodedRequest::new(&charges, key_prefix)
}

/// Returns requests that create a sliding log, add to it and remove from it.
fn log_requests(key_prefix: &str, slot: Option<u16>) -> [EncodedRequest; 3] {
    let (key, log) = (probe_key(slot), Kernel::SlidingLog(SlidingLog::new(PROBE_LOG_LIMIT, PROBE_WINDOW_US)));
    [Cost::take(2), Cost::take(1), Cost::refund(2)].map(|cost| encoded(key_prefix, &key, log, cost))
}

/// Has a server decide a probe's hits; if `needs_log`, also those of a sliding log, whose commands the server may not
/// allow.
///
/// # Errors
/// The first error of a call.
pub(crate) async fn check_writes<F: Future<Output = Result<RequestReply, StoreError>>>(
    key_prefix: &str,
    slot: Option<u16>,
    needs_log: bool,
    call: impl Fn(EncodedRequest) -> F,
) -> Result<(), StoreError> {
    let request = probe_request(key_prefix, slot);
    let mut last_window = None;
    // One more in case a window ends between two hits.
    for _ in 0..=PROBE_HITS {
        // The first integer of a fixed window is its index.
        let window = call(request.clone()).await?.numbers.first().copied();
        if window == last_window {
            break;
        }
        last_window = window;
    }
    if needs_log {
        for request in log_requests(key_prefix, slot) {
            call(request).await?;
        }
    }
    Ok(())
}
