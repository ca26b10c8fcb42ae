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
use crate::store::redis::connect::{CHECKOUT_TIMEOUT, checkout};
use crate::store::redis::script::Encoded;
use crate::store::redis::slot::tag_for_slot;

/// The shortest window. Redis keeps the probe's counter for one to two seconds.
const PROBE_WINDOW_US: u64 = 1;

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
        let mut pooled = checkout(&node.pool, Instant::now() + CHECKOUT_TIMEOUT).await?;
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
    let mut charges = Charges::default();
    let hit = Charge {
        kernel: Kernel::FixedWindow(FixedWindow::new(1, PROBE_WINDOW_US)),
        cost: Cost::take(1),
        charging: Charging::Postpaid,
        role: Role::NonBinding,
        on_store_failure: FailurePolicy::Error,
    };
    charges.push(hit, |key| match slot {
        Some(slot) => key.push_str(&format!("probe{{{}}}", tag_for_slot(slot))),
        None => key.push_str("probe"),
    });
    Encoded::new(&charges, key_prefix)
}
