//! The background work: applies changes of the rules, the exceptions, the map of `/check` and the certificates, waits
//! for Redis, watches its outages and restarts, removes expired counters and denials, warns before the calendars of the
//! rules end, samples for the console.

use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use engine::StoreError;
use futures_util::future::OptionFuture;
use store::redis::{RedisStore, ServerReport, StoreFailure};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::certificates::TlsPorts;
use super::check_map::CheckMapWatcher;
use super::exceptions::ExceptionWatcher;
use super::rule_source::RuleWatcher;
use super::sampler::Sampler;
use super::stores::{Restart, ServerChanges, Stores};
use crate::decide::limiter::Rulebook;
use crate::decide::{NotReadyReason, Readiness};

/// One sweep removes a fraction of the expired entries; at this interval all are removed within half a minute.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two probes, until Redis decides for the first time.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// The time between two looks at the breakers and the connections of Redis.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often servers that do not describe themselves are asked again, once for each interval.
const MOST_UNANSWERED: u32 = 30;
/// How many intervals pass before the clocks of the servers are compared with ours again.
const LOOKS_FOR_CLOCKS: u32 = 60;

/// The time between two looks at the calendars of the rules.
const CALENDAR_INTERVAL: Duration = Duration::from_hours(24);
/// The calendars end soon if they know less than a year.
const CALENDAR_RESERVE_US: u64 = 365 * 86_400 * 1_000_000;

pub(super) struct Background {
    pub(super) rules: RuleWatcher,
    pub(super) exceptions: ExceptionWatcher,
    /// `None` without `/check`.
    pub(super) check_map: Option<CheckMapWatcher>,
    pub(super) tls: TlsPorts,
    pub(super) stores: Arc<Stores>,
    /// The Redis store of the HTTP port, for probes: each gRPC worker has one of its own. `None`: memory keeps
    /// counters.
    pub(super) http_store: Option<RedisStore>,
    pub(super) readiness: Readiness,
    /// Whether the process stays ready while Redis does not answer.
    pub(super) ready_in_outage: bool,
    /// `None` without the admin port.
    pub(super) sampler: Option<Sampler>,
}

impl Background {
    /// Runs until `stop`.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let Self { rules, exceptions, check_map, tls, .. } = self;
        let Self { stores, http_store, readiness, ready_in_outage, sampler, .. } = self;
        let watch_check_map = OptionFuture::from(check_map.map(CheckMapWatcher::watch));
        let sample = OptionFuture::from(sampler.map(Sampler::run));
        let (denials, rulebook) = (Arc::clone(&stores), Arc::clone(&rules.active.rulebook));
        let active_exceptions = exceptions.active.clone();
        let watch_rules = rules.watch(
            move || {
                denials.purge_denials();
                active_exceptions.compare_with_rules();
            },
            stop.cancelled(),
        );
        // A denial that was cached may be of a limit that is now larger.
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
            stop.run_until_cancelled(tls.watch()),
            stop.run_until_cancelled(watch_check_map),
            stop.run_until_cancelled(watch_store),
            stop.run_until_cancelled(sweep_forever(&stores)),
            stop.run_until_cancelled(watch_calendars(&rulebook)),
            stop.run_until_cancelled(sample),
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

/// Warns once a day while the calendars of the rules end soon. Never returns.
async fn watch_calendars(rulebook: &Rulebook) {
    let mut ticks = ticks(CALENDAR_INTERVAL);
    loop {
        ticks.tick().await;
        if end_soon(rulebook.rules().calendars_end_us(), SystemClock.now_us()) {
            tracing::warn!(
                "known calendar ends within a year; restart to extend it. Later windows are as long as the \
                 last known one"
            );
        }
    }
}

fn end_soon(calendars_end_us: Option<u64>, now_us: u64) -> bool {
    calendars_end_us.is_some_and(|end_us| end_us < now_us.saturating_add(CALENDAR_RESERVE_US))
}

/// Waits until Redis decides, then reports ready and describes its servers. Returns whether the store has
/// kept a sliding log.
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

/// Once the first rules are in force, waits until the store does what they need. `kept_log`: whether it has kept a
/// sliding log before.
async fn wait_for_logs(kept_log: bool, redis: &RedisStore, readiness: &Readiness, rulebook: &Rulebook) {
    // It fails only when the process ends.
    drop(readiness.subscribe().wait_for(|reasons| !reasons.contains_key(&NotReadyReason::NoRules)).await);
    if !kept_log && rulebook.rules().has_sliding_log() {
        wait_for_probe(redis, readiness, rulebook).await;
    }
}

/// Probes Redis until it decides, and meanwhile reports not ready. Returns whether it has kept a sliding
/// log, which it must if a rule in force has one.
async fn wait_for_probe(redis: &RedisStore, readiness: &Readiness, rulebook: &Rulebook) -> bool {
    let mut known = None;
    let kept_log = loop {
        let needs_log = rulebook.rules().has_sliding_log();
        let Err(failure) = redis.probe_backends(needs_log).await else { break needs_log };
        let StoreFailure { backends, error } = &failure;
        tracing::debug!(%error, groups = backends, "Redis is not ready yet");
        readiness.set_with_detail(NotReadyReason::StoreNotReached, shown(&failure));
        let found = not_ready_reason(error.root());
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

/// Ends outages, and reports them in `readiness` if it is given: once no worker has sent a call to a group of servers
/// for a second. Never returns.
async fn watch_outages(stores: &Stores, readiness: Option<&Readiness>) {
    let mut ticks = ticks(LOOK_INTERVAL);
    let mut was_away = false;
    loop {
        ticks.tick().await;
        stores.end_outages();
        let Some(readiness) = readiness else { continue };
        let failure = stores.failure();
        match failure.as_ref().filter(|_| was_away) {
            Some(failure) => readiness.set_with_detail(NotReadyReason::StoreOutage, shown(failure)),
            None => readiness.clear(NotReadyReason::StoreOutage),
        }
        was_away = failure.is_some();
    }
}

/// Asks the servers for their descriptions again once a minute and when there are new connections to them. Logs which
/// ones were restarted or have given their place to a replica, and which have a clock that now differs from ours. Never
/// returns.
async fn watch_servers(redis: &RedisStore, stores: &Stores) {
    let mut ticks = ticks(LOOK_INTERVAL);
    let (mut known, mut unanswered, mut looks) = (redis.connections_opened(), 0, 0);
    loop {
        ticks.tick().await;
        let opened = redis.connections_opened();
        looks += 1;
        if known == opened && looks < LOOKS_FOR_CLOCKS {
            continue;
        }
        looks = 0;
        let servers = redis.describe_servers().await;
        // A server that is still loading its data does not describe itself yet, and is asked again.
        let is_later = |report: &ServerReport| {
            report.description.as_ref().is_err_and(|error| !matches!(error.root(), StoreError::Forbidden(_)))
        };
        unanswered = if servers.iter().any(is_later) { unanswered + 1 } else { MOST_UNANSWERED };
        if unanswered >= MOST_UNANSWERED {
            (known, unanswered) = (opened, 0);
        }
        let ServerChanges { restarts, wrong_clocks } = stores.update_servers(servers);
        for (address, difference) in wrong_clocks {
            tracing::warn!(address, difference, "Redis clock differs from the local clock");
        }
        for Restart { address, keys } in restarts {
            let node = (!address.is_empty()).then_some(address);
            tracing::warn!(node, keys, "Redis restarted or failed over; counters it had not saved are lost");
        }
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The servers that do not decide, where there are two backends, and the cause. The HTTP port shows it, so it has no
/// address.
fn shown(failure: &StoreFailure) -> String {
    let cause = failure.error.brief();
    failure.backends.as_ref().map_or_else(|| cause.to_owned(), |backends| format!("{backends}: {cause}"))
}

/// Why the store will not decide until an operator changes something, and the same in words; `None` for an outage.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendars_that_know_less_than_a_year_end_soon() {
        let now_us = 1_700_000_000_000_000;
        assert!(!end_soon(None, now_us), "no calendar");
        assert!(!end_soon(Some(now_us + CALENDAR_RESERVE_US), now_us));
        assert!(end_soon(Some(now_us + CALENDAR_RESERVE_US - 1), now_us));
        assert!(end_soon(Some(now_us - 1), now_us));
    }
}
