//! What has to be done from time to time while the process serves.

use std::future::Future;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::status::{StoreStatus, fact};
use super::stores::Stores;
use crate::clock::SystemClock;
use crate::engine::StoreError;
use crate::store::redis::{RedisStore, ServerInfo};
use crate::transport::{NotReadyReason, Readiness};

/// A sweep forgets a share of what has run out; at this pace all of it within half a minute.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Until Redis answers for the first time.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Sweeps the memory store and the deny cache until `end`.
pub(super) async fn keep(stores: &Stores, end: impl Future<Output = ()>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return,
            _ = ticks.tick() => {
                stores.memory.sweep();
                if let Some(denials) = &stores.denials {
                    denials.sweep();
                }
            }
        }
    }
}

/// Asks Redis until it answers for the first time, or until `end`.
pub(super) async fn reach(
    redis: Option<RedisStore>,
    readiness: &Readiness,
    status: &StoreStatus,
    end: impl Future<Output = ()>,
) {
    let Some(redis) = redis else {
        return;
    };
    let reached = async {
        let mut is_forbidden = false;
        while let Err(error) = redis.ping().await {
            tracing::debug!(%error, "Redis does not answer yet");
            let was_forbidden = is_forbidden;
            is_forbidden = matches!(error.root(), StoreError::Forbidden(_));
            if is_forbidden && !was_forbidden {
                tracing::error!(error = %error.root(), "Redis turns this process away: not ready");
                readiness.set(NotReadyReason::StoreForbidden);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        tracing::info!("Redis answers");
        readiness.clear(NotReadyReason::StoreNotReached);
        readiness.clear(NotReadyReason::StoreForbidden);
        let servers = redis.servers(&SystemClock).await;
        servers.iter().for_each(|(address, told)| describe(address, told));
        status.know(servers);
    };
    tokio::select! {
        () = reached => {}
        () = end => {}
    }
}

/// Says in the log what kind of server it is, and what is better put right about it.
fn describe(address: &str, told: &Result<ServerInfo, StoreError>) {
    let info = match told {
        Ok(info) => info,
        Err(error) => {
            tracing::warn!(%error, address, "Redis could not be asked what it is");
            return;
        }
    };
    tracing::info!(
        address,
        server = fact(&info.server),
        eviction = fact(&info.eviction),
        clock = fact(&info.clock),
        "Redis server"
    );
    for concern in info.concerns() {
        tracing::warn!(address, "Redis: {concern}");
    }
}
