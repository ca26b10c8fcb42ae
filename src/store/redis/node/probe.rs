//! The probe that closes the breaker: asks the server for one decision.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::state::{Calls, NodeState};
use super::{batcher, calls};
use crate::clock::monotonic;
use crate::engine::algorithm::{FixedWindow, Kernel};
use crate::engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, StoreError};
use crate::store::breaker::BreakerState;
use crate::store::redis::address;
use crate::store::redis::connect::{CHECKOUT_TIMEOUT, checkout};
use crate::store::redis::observer::BreakerTransition;
use crate::store::redis::script::Encoded;

/// As short as a window may be: a probe leaves nothing that is worth keeping.
const PROBE_WINDOW_US: u64 = 1;

/// Probes whenever the breaker is open, until it is dropped.
pub(super) async fn watch(shared: Arc<NodeState>) {
    let gate = &shared.gate;
    let Some(breaker) = &gate.breaker else { return };
    loop {
        let due = breaker.lock().probe_at();
        let Some(due) = due else {
            gate.opened.notified().await;
            continue;
        };
        sleep_until(Instant::from_std(due)).await;
        breaker.lock().probing();
        gate.transition(BreakerTransition {
            from: BreakerState::Open,
            to: BreakerState::HalfOpen,
            cause: None,
        });
        let result = probe(&shared).await;
        let failure = result.clone().err();
        let to = {
            let mut breaker = breaker.lock();
            breaker.probed(monotonic(), result);
            breaker.state()
        };
        gate.transition(BreakerTransition { from: BreakerState::HalfOpen, to, cause: failure.as_ref() });
    }
}

/// Whether the server decides: one decision of its own, by the way of all others.
async fn probe(shared: &NodeState) -> Result<(), StoreError> {
    loop {
        let mut attempt = checkout(&shared.pool, Instant::now() + CHECKOUT_TIMEOUT).await?;
        let connection = attempt.as_mut().map_err(|failure| failure.cause.clone())?;
        if !connection.is_alive(shared.timeout).await {
            continue;
        }
        let deadline = Instant::now() + shared.timeout;
        let question = shared.probe.lock().clone();
        return match shared.calls {
            Calls::One => batcher::decide(connection, std::iter::once(&question), deadline).await.map(|_| ()),
            Calls::PerSlot => calls::probe(connection, &question, deadline).await,
        };
    }
}

/// What a probe asks: a hit that is recorded whatever is there, because replicas and full servers read well enough. In a
/// cluster about a slot of the server's own, because what it says of others' does not show whether it decides.
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
        Some(slot) => key.push_str(&format!("probe{{{}}}", address::tag(slot))),
        None => key.push_str("probe"),
    });
    Encoded::new(&charges, key_prefix)
}
