//! Work that no request waits for: applies changes of rules, exceptions, the `/check` map and certificates, waits for
//! Redis, watches its outages and restarts, removes expired counters and denials, samples for the console.

use std::sync::Arc;
use std::time::Duration;

use base::ticks;
use engine::StoreError;
use futures_util::future::OptionFuture;
use store::redis::{RedisStore, ServerReport, StoreFailure};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::certificates::TlsPorts;
use super::check_map::CheckMapWatcher;
use super::exceptions::ExceptionWatcher;
use super::fleet::Fleet;
use super::rights::RightsWatcher;
use super::rule_source::RuleWatcher;
use super::sampler::Sampler;
use super::stores::{Restart, ServerChanges, Stores};
use crate::decide::limiter::Rulebook;
use crate::decide::{NotReadyReason, Readiness};
use crate::live::LiveExceptions;

/// A sweep removes a fraction of the expired entries; at this interval all of them go within half a minute.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Between two probes, until Redis first decides.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// A new process waits for home this long: a region must be able to grow while home is away.
const WAIT_FOR_HOME: Duration = Duration::from_secs(5);

/// Between two checks of Redis's breakers and connections.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Retries for a server that cannot be described, one per interval.
const MOST_UNANSWERED: u32 = 30;
/// Intervals between two comparisons of the servers' clocks with this machine's.
const LOOKS_FOR_CLOCKS: u32 = 60;

pub(super) struct Background {
    pub(super) rules: RuleWatcher,
    pub(super) exceptions: ExceptionWatcher,
    pub(super) live: LiveExceptions,
    /// `None` without `/check`.
    pub(super) check_map: Option<CheckMapWatcher>,
    /// `None` without `server.rights`.
    pub(super) rights: Option<RightsWatcher>,
    pub(super) tls: TlsPorts,
    pub(super) stores: Arc<Stores>,
    /// The Redis store of the HTTP port, for probes: each gRPC worker has its own. `None`: counters are in memory.
    pub(super) http_store: Option<RedisStore>,
    pub(super) readiness: Readiness,
    /// `true` if the process stays ready while Redis does not answer.
    pub(super) ready_in_outage: bool,
    pub(super) fleet: Fleet,
    /// `None` without the admin port.
    pub(super) sampler: Option<Sampler>,
}

impl Background {
    /// Runs until `stop`.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let Self { rules, exceptions, live, check_map, rights, tls, .. } = self;
        let Self { stores, http_store, readiness, ready_in_outage, fleet, sampler, .. } = self;
        let watch_check_map = OptionFuture::from(check_map.map(CheckMapWatcher::watch));
        let watch_rights = OptionFuture::from(rights.map(RightsWatcher::watch));
        let sample = OptionFuture::from(sampler.map(Sampler::run));
        let watch_fleet = fleet.watch();
        let (denials, rulebook) = (Arc::clone(&stores), Arc::clone(&rules.active.rulebook));
        let news = Arc::clone(&rules.active.news);
        let (active_exceptions, compared) = (exceptions.active.clone(), live.clone());
        let watch_rules = rules.watch(
            move || {
                denials.purge_denials();
                active_exceptions.compare_with_rules();
                compared.compare_with_rules();
            },
            stop.cancelled(),
        );
        // A cached denial may be of a limit that is now larger.
        let denials = Arc::clone(&stores);
        let watch_exceptions = exceptions.watch(move || denials.purge_denials());
        let watch_store = async {
            if let Some(redis) = &http_store {
                let kept_log = wait_for_store(redis, &readiness, &stores, &rulebook).await;
                let follow = (!ready_in_outage).then_some(&readiness);
                tokio::join!(
                    wait_for_logs(kept_log, redis, &readiness, &rulebook),
                    watch_outages(&stores, follow),
                    watch_servers(redis, &stores)
                );
            }
        };
        tokio::join!(
            watch_rules,
            stop.run_until_cancelled(watch_exceptions),
            stop.run_until_cancelled(live.run(news)),
            stop.run_until_cancelled(tls.watch()),
            stop.run_until_cancelled(watch_check_map),
            stop.run_until_cancelled(watch_rights),
            stop.run_until_cancelled(watch_store),
            stop.run_until_cancelled(sweep_forever(&stores)),
            stop.run_until_cancelled(sample),
            stop.run_until_cancelled(watch_fleet),
        );
    }
}

/// Sweeps the memory store and the deny cache. Never returns.
async fn sweep_forever(stores: &Stores) {
    let mut ticks = ticks(SWEEP_INTERVAL);
    loop {
        ticks.tick().await;
        stores.sweep();
    }
}

/// Waits until Redis decides, then reports ready and describes its servers. Returns `true` if the store has kept a
/// sliding log.
async fn wait_for_store(
    redis: &RedisStore,
    readiness: &Readiness,
    stores: &Stores,
    rulebook: &Rulebook,
) -> bool {
    let kept_log = wait_for_probe(redis, readiness, rulebook).await;
    tracing::info!("Redis is available");
    let servers = redis.describe_servers().await;
    servers.iter().for_each(log_server);
    stores.update_servers(servers);
    kept_log
}

/// Once the first rules are loaded, waits until the store can do what they need. `kept_log`: `true` if it has kept a
/// sliding log already.
async fn wait_for_logs(kept_log: bool, redis: &RedisStore, readiness: &Readiness, rulebook: &Rulebook) {
    // Fails only when the process ends.
    drop(readiness.subscribe().wait_for(|reasons| !reasons.contains_key(&NotReadyReason::NoRules)).await);
    if !kept_log && rulebook.rules().has_sliding_log() {
        wait_for_probe(redis, readiness, rulebook).await;
    }
}

/// Probes Redis until it decides, and reports not ready until then. Of servers in home it demands only for
/// [`WAIT_FOR_HOME`] that they answer. Returns `true` if it has kept a sliding log, which
/// is required if a current rule has one.
async fn wait_for_probe(redis: &RedisStore, readiness: &Readiness, rulebook: &Rulebook) -> bool {
    let (mut known, began) = (None, Instant::now());
    let kept_log = loop {
        let needs_log = rulebook.rules().has_sliding_log();
        let Err(failure) = redis.probe_backends(needs_log).await else { break needs_log };
        let StoreFailure { backends, is_of_home, error } = &failure;
        let found = not_ready_reason(error.root());
        if *is_of_home && found.is_none() && began.elapsed() >= WAIT_FOR_HOME {
            tracing::warn!(%error, "home does not answer; ready without it");
            break needs_log;
        }
        tracing::debug!(%error, groups = backends, "Redis is not ready yet");
        readiness.set_with_detail(NotReadyReason::StoreNotReached, shown(&failure));
        let reason = found.map(|(reason, _)| reason);
        if reason != known {
            known.into_iter().for_each(|reason| readiness.clear(reason));
            if let Some((reason, problem)) = found {
                tracing::error!(error = %error.root(), "{problem}; not ready");
                match error.root() {
                    StoreError::Tls { reason: detail, .. } => {
                        readiness.set_with_detail(reason, detail.clone())
                    }
                    _ => readiness.set(reason),
                }
            }
            known = reason;
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    };
    known.into_iter().for_each(|reason| readiness.clear(reason));
    readiness.clear(NotReadyReason::StoreNotReached);
    kept_log
}

/// Ends outages. If `readiness` is given, reports an outage there once no worker has sent a call to a group of servers
/// for a second. Never returns.
async fn watch_outages(stores: &Stores, readiness: Option<&Readiness>) {
    let mut ticks = ticks(LOOK_INTERVAL);
    let mut was_away = false;
    loop {
        ticks.tick().await;
        stores.end_outages();
        let Some(readiness) = readiness else { continue };
        let failure = stores.failure().filter(|failure| !failure.is_of_home);
        match failure.as_ref().filter(|_| was_away) {
            Some(failure) => readiness.set_with_detail(NotReadyReason::StoreOutage, shown(failure)),
            None => readiness.clear(NotReadyReason::StoreOutage),
        }
        was_away = failure.is_some();
    }
}

/// Reads the servers' descriptions again once a minute, and when servers or connections are new. Logs which ones were
/// restarted or failed over to a replica, and whose clock now differs from this machine's. Never returns.
async fn watch_servers(redis: &RedisStore, stores: &Stores) {
    let mut ticks = ticks(LOOK_INTERVAL);
    let connected = || {
        let names: Vec<_> = redis.nodes().into_iter().map(|(name, _)| name).collect();
        (redis.connections_opened(), names)
    };
    let (mut known, mut unanswered, mut looks) = (connected(), 0, 0);
    loop {
        ticks.tick().await;
        let now = connected();
        looks += 1;
        if known == now && looks < LOOKS_FOR_CLOCKS {
            continue;
        }
        looks = 0;
        let servers = redis.describe_servers().await;
        // A server still loading its data cannot be described yet, and is asked again.
        let is_later = |report: &ServerReport| {
            report.description.as_ref().is_err_and(|error| !matches!(error.root(), StoreError::Forbidden(_)))
        };
        unanswered = if servers.iter().any(is_later) { unanswered + 1 } else { MOST_UNANSWERED };
        if unanswered >= MOST_UNANSWERED {
            (known, unanswered) = (now, 0);
        }
        let ServerChanges { restarts, has_new_server, wrong_clocks } = stores.update_servers(servers);
        for (address, difference) in wrong_clocks {
            tracing::warn!(address, difference, "Redis clock differs from the local clock");
        }
        if has_new_server || !restarts.is_empty() {
            stores.drop_leases();
        }
        for Restart { address, keys } in restarts {
            let node = (!address.is_empty()).then_some(address);
            tracing::warn!(node, keys, "Redis restarted or failed over; counters it had not saved are lost");
        }
    }
}

/// Returns the failure's cause and, with two backends, the servers that cannot decide. The HTTP port shows it, so it
/// has no address.
fn shown(failure: &StoreFailure) -> String {
    let cause = failure.error.brief();
    failure.backends.as_ref().map_or_else(|| cause.to_owned(), |backends| format!("{backends}: {cause}"))
}

/// Returns why the store cannot decide until an operator acts, and the same in words; `None` for an outage.
fn not_ready_reason(error: &StoreError) -> Option<(NotReadyReason, &'static str)> {
    match error {
        StoreError::Forbidden(_) => {
            Some((NotReadyReason::StoreForbidden, "Redis rejects the credentials, permissions or database"))
        }
        StoreError::ReadOnly(_) => Some((NotReadyReason::StoreReadOnly, "Redis is a read-only replica")),
        StoreError::Tls { .. } => Some((NotReadyReason::StoreTls, "TLS verification with Redis failed")),
        _ => None,
    }
}

fn log_server(report: &ServerReport) {
    let address = &report.address;
    let description = match &report.description {
        Ok(description) => description,
        Err(error) => {
            tracing::warn!(%error, address, "cannot read Redis INFO; version, eviction and clock unknown");
            return;
        }
    };
    tracing::info!(
        address,
        server = description.server,
        eviction = description.eviction,
        clock = description.clock,
        "Redis server"
    );
    for concern in &description.concerns {
        tracing::warn!(address, %concern, "Redis setup needs attention");
    }
}
