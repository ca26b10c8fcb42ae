//! What has to be done from time to time while the process serves.

use std::future::Future;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::stores::Stores;

/// A sweep forgets a share of what has run out; at this pace all of it within half a minute.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Sweeps the memory store until `end`.
pub(super) async fn keep(stores: &Stores, end: impl Future<Output = ()>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return,
            _ = ticks.tick() => stores.memory.sweep(),
        }
    }
}
