//! Reports once a second to the console what the process has done and how it is.

use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use parking_lot::Mutex;
use store::breaker::BreakerState;
use tokio::time::{Instant, MissedTickBehavior};

use super::active_rules::{ActiveRules, RulesStatus};
use super::certificates::TlsStatus;
use super::fleet::Fleet;
use super::status::{RedisView, redis_answers};
use super::stores::Stores;
use crate::console::{
    Certificate, Console, LastOutage, LiveObserved, Observation, RejectedRules, RulesObserved,
    ServiceObserved, StoreObserved,
};
use crate::decide::{NotReadyReason, Readiness};
use crate::live::LiveExceptions;
use crate::settings::StoreKind;
use crate::telemetry::metrics::Metrics;
use crate::xds::XdsState;

const SECOND: Duration = Duration::from_secs(1);
const MICROSECONDS: u64 = 1_000_000;

/// The sampled parts.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) console: Arc<Console>,
    pub(super) metrics: Metrics,
    pub(super) rules: ActiveRules,
    pub(super) xds: Option<XdsState>,
    pub(super) stores: Arc<Stores>,
    pub(super) readiness: Readiness,
    pub(super) tls: Vec<Arc<Mutex<TlsStatus>>>,
    pub(super) live: LiveExceptions,
    pub(super) fleet: Fleet,
}

impl Sampler {
    /// Samples once a second. Never returns.
    pub(super) async fn run(self) {
        let mut ticks = tokio::time::interval_at(Instant::now() + SECOND, SECOND);
        // Missed seconds are reported as seconds without requests, so that the time axis stays right.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut last: Option<Instant> = None;
        loop {
            let tick = ticks.tick().await;
            let passed = last.replace(tick).map_or(SECOND, |last| tick - last);
            self.console.observe(self.observation((passed.as_millis() as u64 + 500) / 1_000));
        }
    }

    fn observation(&self, seconds: u64) -> Observation {
        Observation {
            end: SystemClock.now_us() / MICROSECONDS,
            seconds: seconds.max(1),
            metrics: self.metrics.sample(),
            limits: self.metrics.limits_in_force(),
            denied: self.metrics.take_denied_keys(),
            rule_set: self.rules.rulebook.rules(),
            rules: rules_observed(&self.rules.status.lock(), self.xds.as_ref()),
            store: self.store(),
            service: self.service(),
            live: LiveObserved::new(&self.live.view()),
        }
    }

    fn store(&self) -> StoreObserved {
        let view = self.stores.view();
        let evictions = view.memory.evictions;
        let Some(redis) = view.redis else {
            let kind = StoreKind::Memory.into_str();
            return StoreObserved { kind, answers: true, evictions, ..StoreObserved::default() };
        };
        let is_open = |(_, state): &&(String, BreakerState)| *state == BreakerState::Open;
        StoreObserved {
            kind: StoreKind::Redis.into_str(),
            answers: redis_answers(&redis),
            breakers: redis.nodes.len(),
            breakers_open: redis.nodes.iter().filter(is_open).count(),
            deny_hits: redis.denials.as_ref().map_or(0, |stats| stats.hits),
            deny_keys: redis.denials.as_ref().map_or(0, |stats| stats.keys),
            leases: self.stores.leases_by_limit(),
            evictions,
            server: server_text(&redis),
            last_outage: redis.last_outage.map(|outage| LastOutage {
                at: outage.at_us / MICROSECONDS,
                error: outage.error,
                is_over: outage.is_over,
            }),
        }
    }

    fn service(&self) -> ServiceObserved {
        let certificate = |status: &Arc<Mutex<TlsStatus>>| {
            let status = status.lock();
            Certificate { port: status.port.into_str(), expires_at: status.certificate.not_after_s }
        };
        ServiceObserved {
            reasons: self.readiness.descriptions(),
            is_draining: self.readiness.has(NotReadyReason::Draining),
            fleet: self.fleet.in_words(),
            certificates: self.tls.iter().map(certificate).collect(),
        }
    }
}

fn rules_observed(status: &RulesStatus, xds: Option<&XdsState>) -> RulesObserved {
    let rejected = status.load.last_error.as_ref().map(|error| RejectedRules {
        at: error.at_us / MICROSECONDS,
        problems: error.reason.all().iter().map(ToString::to_string).collect(),
    });
    RulesObserved {
        generation: status.load.loads_ok,
        loaded_at: status.load.loaded_at_us / MICROSECONDS,
        files: status.files,
        domains: status.domains.len(),
        warnings: status.warnings.all().len(),
        rejected,
        xds_connected: xds.map(|status| status.lock().connected),
    }
}

/// Returns program, version and topology of the first server with a description.
fn server_text(redis: &RedisView) -> Option<String> {
    let described = redis.servers.iter().find_map(|report| report.description.as_ref().ok());
    described.map(|description| format!("{}, {}", description.server, redis.main.topology))
}
