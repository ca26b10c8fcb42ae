//! Keeps the slot map up to date: loads it at startup, on request, and at intervals. Asks one node at a time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use engine::StoreError;
use redis::Value;
use tokio::time::{Instant, sleep, timeout};

use super::refresh_signal::{POLL_INTERVAL, jittered};
use super::router::Router;
use super::slot_ranges::{SlotRange, parse_slot_ranges};
use crate::redis::address::Address;
use crate::redis::connect::Target;

/// Minimum time for one node to connect and reply.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// Pause after a refresh that found new or lost primaries.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The pause doubles up to this length while refreshes find no change. It bounds how late a completed failover is
/// noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Refreshes the slot map forever.
pub(super) async fn run(router: Arc<Router>) -> Infallible {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let has_changed = match query_nodes(&router).await {
            Ok(reported) => router.update_slots(&reported),
            Err(failure) => {
                router.refresh_failed(failure);
                false
            }
        };
        pause = if has_changed { SHORTEST_PAUSE } else { LONGEST_PAUSE.min(2 * pause) };
        sleep(jittered(pause)).await;
        if !router.is_loaded() {
            continue;
        }
        let idle_since = Instant::now();
        let is_requested = router.refresh_signal.next().await;
        if !is_requested || idle_since.elapsed() > POLL_INTERVAL {
            pause = SHORTEST_PAUSE;
        }
    }
}

/// Returns the slots from the first node that replies. Nodes that failed come last.
async fn query_nodes(router: &Router) -> Result<Vec<SlotRange>, StoreError> {
    let failed = router.refresh_signal.take_failed_nodes();
    let mut nodes = router.targets();
    fastrand::shuffle(&mut nodes);
    nodes.extend(router.seeds());
    nodes.sort_by_key(|(address, _)| failed.contains(address));
    let mut failure = StoreError::Unreachable("no node is known".into());
    for (address, target) in nodes {
        let limit = target.connect_time(NODE_TIMEOUT, 1);
        match timeout(limit, query_slots(&address, &target)).await {
            Ok(Ok(reported)) => return Ok(reported),
            Ok(Err(reason)) => failure = reason,
            Err(_elapsed) => failure = StoreError::Timeout,
        }
    }
    Err(failure)
}

async fn query_slots(address: &Address, target: &Target) -> Result<Vec<SlotRange>, StoreError> {
    let (mut raw, _) = target.connect().await?;
    let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
    let reply: Value = raw.query(&command).await?;
    parse_slot_ranges(&reply, address)
}
