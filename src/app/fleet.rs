//! What this process and the other instances loaded: `GET /fleet`, and the number of instances for
//! `failure.local_share: auto`. Instances report it to Redis with each poll of live rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use serde_json::{Map, Value, json};
use store::redis::RedisStore;
use tokio::time::MissedTickBehavior;

use super::active_rules::ActiveRules;
use super::console_start::host_name;
use crate::decide::Readiness;

/// If an instance does not report for longer, it is not live.
const LIVE_US: u64 = 10_000_000;
/// Between two counts of the live instances.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Clones are of the same process.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    /// Different in every process.
    pub(super) name: String,
    /// Seconds since the epoch.
    started: u64,
    rules: ActiveRules,
    readiness: Readiness,
    /// `None` if instances do not report to Redis.
    redis: Option<RedisStore>,
    /// Processes that share a limit with the failure policy `local`.
    local_share: Arc<AtomicU32>,
}

impl Fleet {
    pub(super) fn new(
        rules: ActiveRules,
        readiness: Readiness,
        redis: Option<RedisStore>,
        local_share: Arc<AtomicU32>,
    ) -> Self {
        let started_us = SystemClock.now_us();
        let name = format!("{}-{started_us}", host_name());
        Self { name, started: started_us / 1_000_000, rules, readiness, redis, local_share }
    }

    /// Returns what this process reports. `exceptions`: the newest version of its live rows.
    pub(super) fn status(&self, exceptions: u64) -> Value {
        let rules = self.rules.status.lock();
        json!({
            "at": SystemClock.now_us() / 1_000_000,
            "started": self.started,
            "version": env!("CARGO_PKG_VERSION"),
            "rules": rules.digest,
            "rules_refused": rules.refused(),
            "exceptions": exceptions.to_string(),
            "ready": self.readiness.is_ready(),
        })
    }

    /// Returns the page `/fleet`: this process as it is now, and the others as they reported last.
    pub(super) async fn page(&self, exceptions: u64) -> Value {
        let mut own = self.status(exceptions);
        (own["name"], own["live"]) = (json!(self.name), json!(true));
        let Some(redis) = &self.redis else { return json!({"source": "process", "instances": [own]}) };
        let (reported, error) = match redis.instances().await {
            Ok(reported) => (reported, None),
            Err(error) => (Vec::new(), Some(format!("Redis does not list the instances: {error}"))),
        };
        let others = reported.into_iter().filter(|instance| instance.name != self.name).map(|instance| {
            // Another release may report something else.
            let mut shown: Map<String, Value> = serde_json::from_str(&instance.status).unwrap_or_default();
            shown.insert("live".to_owned(), (instance.age_us <= LIVE_US).into());
            shown.insert("name".to_owned(), instance.name.into());
            Value::Object(shown)
        });
        let instances: Vec<_> = [own].into_iter().chain(others).collect();
        let local_share = self.local_share.load(Ordering::Relaxed);
        json!({"source": "redis", "error": error, "local_share": local_share, "instances": instances})
    }

    /// Keeps the local share at the number of live instances, at least 1. While Redis is away, the last number stays:
    /// it is needed then. Returns only if no Redis lists them.
    pub(super) async fn count_forever(&self) {
        let Some(redis) = &self.redis else { return };
        let mut ticks = tokio::time::interval(COUNT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = 0;
        loop {
            ticks.tick().await;
            // The poll of live rows logs why Redis does not answer.
            let Ok(reported) = redis.instances().await else { continue };
            let live = reported.iter().filter(|instance| instance.age_us <= LIVE_US).count();
            let live = u32::try_from(live).unwrap_or(u32::MAX);
            // After an outage the reports are old, until each instance reports again within a second.
            self.local_share.store(live.max(before).max(1), Ordering::Relaxed);
            before = live;
        }
    }
}
