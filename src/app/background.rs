//! The background work: watches the rule files, waits for the remote store, removes expired counters and denials.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::rules::RuleWatcher;
use super::stores::{Remote, Stores};
use crate::engine::StoreError;
use crate::store::remote::{RemoteStore, ServerReport};
use crate::transport::{NotReadyReason, Readiness};

/// One sweep removes a fraction of the expired entries; at this interval all are removed within half a minute.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two pings, until the remote store answers for the first time.
const PING_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Background {
    /// `None` if changes of the files are ignored.
    pub(super) rules: Option<RuleWatcher>,
    pub(super) stores: Arc<Stores>,
    pub(super) remote: Option<Remote>,
    pub(super) readiness: Readiness,
}

impl Background {
    /// Runs until `stop`.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let Self { rules, stores, remote, readiness } = self;
        let watch_rules = async {
            if let Some(rules) = rules {
                rules.watch(|| stores.purge_denials(), stop.cancelled()).await;
            }
        };
        let first_answer = async {
            if let Some(remote) = &remote {
                wait_for_store(remote, &readiness, &stores).await;
            }
        };
        tokio::join!(
            watch_rules,
            stop.run_until_cancelled(first_answer),
            stop.run_until_cancelled(sweep_forever(&stores)),
        );
    }
}

/// Sweeps the memory store and the deny cache. Never returns.
async fn sweep_forever(stores: &Stores) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        stores.sweep();
    }
}

/// Pings the remote store until it answers, then reports ready and describes its servers.
async fn wait_for_store<R: RemoteStore>(remote: &R, readiness: &Readiness, stores: &Stores) {
    let product = R::PRODUCT;
    let mut is_forbidden = false;
    while let Err(error) = remote.ping().await {
        tracing::debug!(%error, "{product} does not answer yet");
        let was_forbidden = is_forbidden;
        is_forbidden = matches!(error.root(), StoreError::Forbidden(_));
        if is_forbidden && !was_forbidden {
            let error = error.root();
            tracing::error!(
                %error,
                "{product} rejects the credentials, permissions or database of this process: not ready"
            );
            readiness.set(NotReadyReason::StoreForbidden);
        }
        tokio::time::sleep(PING_INTERVAL).await;
    }
    tracing::info!("{product} answers");
    readiness.clear(NotReadyReason::StoreNotReached);
    readiness.clear(NotReadyReason::StoreForbidden);
    let servers = remote.servers().await;
    servers.iter().for_each(|report| log_server(product, report));
    stores.set_servers(servers);
}

fn log_server(product: &str, report: &ServerReport) {
    let address = &report.address;
    let description = match &report.description {
        Ok(description) => description,
        Err(error) => {
            tracing::warn!(%error, address, "the {product} server did not describe itself");
            return;
        }
    };
    tracing::info!(
        address,
        server = description.server,
        eviction = description.eviction,
        clock = description.clock,
        "{product} server"
    );
    for concern in &description.concerns {
        tracing::warn!(address, "{product}: {concern}");
    }
}
