//! The probe: while the breaker is open, sends probe requests to the server until one succeeds.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::calls;
use super::job::Job;
use super::state::NodeState;
use crate::engine::algorithm::{FixedWindow, Kernel};
use crate::engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, StoreError};
use crate::store::redis::connect::{checkout, checkout_timeout};
use crate::store::redis::script::{Answer, Encoded};
use crate::store::redis::slot::tag_for_slot;

/// The shortest window. Redis keeps the probe's counter for one to two seconds.
const PROBE_WINDOW_US: u64 = 1;

/// Long enough for several round trips.
const WRITE_CHECK_WINDOW_US: u64 = 10_000_000;

/// Two hits check the writes; one more is needed if a window ends between them.
const WRITE_CHECK_HITS: usize = 3;

/// Sends a probe whenever one is due.
pub(super) async fn run(node: Arc<NodeState>) -> Infallible {
    loop {
        node.breaker.probe_due().await;
        let result = probe(&node).await;
        node.breaker.record_probe(result);
    }
}

/// Has the server decide one request, by the same script and connections as all requests.
async fn probe(node: &NodeState) -> Result<(), StoreError> {
    loop {
        let mut pooled = checkout(&node.pool, Instant::now() + checkout_timeout(&node.target)).await?;
        let connection = pooled.as_mut().map_err(|failure| failure.cause.clone())?;
        if !connection.is_alive(node.timeout).await {
            continue;
        }
        let deadline = Instant::now() + node.timeout;
        let request = node.probe_request.lock().clone();
        // Only the result counts, so the answer has no receiver.
        let (reply, _) = oneshot::channel();
        let job = Job { request, mode: node.probe_mode, deadline, reply };
        let calls = calls::send(connection, vec![job], deadline).await;
        return calls::health(&calls).map_err(Clone::clone);
    }
}

/// The request that a probe sends. It writes a counter, because a replica or a server without memory still answers
/// reads. In a cluster its key is in a slot of the node, because a redirect would count as success.
pub(crate) fn probe_request(key_prefix: &str, slot: Option<u16>) -> Encoded {
    hit(key_prefix, &probe_key(slot), PROBE_WINDOW_US)
}

/// Has a server decide hits on a new counter: the first creates the counter, the next one changes it, and the script
/// uses another command for each.
///
/// # Errors
/// The first error of a call.
pub(crate) async fn check_writes<F: Future<Output = Result<Answer, StoreError>>>(
    key_prefix: &str,
    slot: Option<u16>,
    call: impl Fn(Encoded) -> F,
) -> Result<(), StoreError> {
    let key = format!("{}/{:016x}", probe_key(slot), fastrand::u64(..));
    let request = hit(key_prefix, &key, WRITE_CHECK_WINDOW_US);
    let mut last_window = None;
    for _ in 0..WRITE_CHECK_HITS {
        // The first number of a fixed window is its index.
        let window = call(request.clone()).await?.numbers.first().copied();
        if window == last_window {
            break;
        }
        last_window = window;
    }
    Ok(())
}

fn probe_key(slot: Option<u16>) -> String {
    slot.map_or_else(|| "probe".to_owned(), |slot| format!("probe{{{}}}", tag_for_slot(slot)))
}

/// A hit on a fixed window that denies nothing.
fn hit(key_prefix: &str, key: &str, window_us: u64) -> Encoded {
    let mut charges = Charges::default();
    let hit = Charge {
        kernel: Kernel::FixedWindow(FixedWindow::new(u64::from(u32::MAX), window_us)),
        cost: Cost::take(1),
        charging: Charging::Postpaid,
        role: Role::NonBinding,
        on_store_failure: FailurePolicy::Error,
    };
    charges.push(hit, |text| text.push_str(key));
    Encoded::new(&charges, key_prefix)
}
