//! What this process and the other instances loaded: `GET /fleet`, the line in the console, and the number of
//! instances for `failure.local_share: auto`. Instances report it to Redis with each poll of live rows.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use store::redis::{Instance, RedisStore};

use super::active_rules::ActiveRules;
use super::console_start::host_name;
use crate::decide::Readiness;

/// If an instance does not report for longer, it is not live.
const LIVE_US: u64 = 10_000_000;
/// Between two looks at the live instances.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

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
    is_share_counted: bool,
    words: Arc<Mutex<String>>,
}

impl Fleet {
    /// `local_share`: what the settings say; without it this counts the processes.
    pub(super) fn new(
        rules: ActiveRules,
        readiness: Readiness,
        redis: Option<RedisStore>,
        local_share: (Arc<AtomicU32>, Option<NonZeroU32>),
    ) -> Self {
        let started_us = SystemClock.now_us();
        let name = format!("{}-{started_us}", host_name());
        let (local_share, fixed) = local_share;
        let (is_share_counted, words) = (fixed.is_none(), Arc::default());
        let started = started_us / 1_000_000;
        Self { name, started, rules, readiness, redis, local_share, is_share_counted, words }
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

    /// Returns the line in the console, such as `3 instances, all with these rules`; empty if Redis does not list the
    /// instances.
    pub(super) fn in_words(&self) -> String {
        self.words.lock().clone()
    }

    /// Follows the live instances. Keeps a counted local share at their number, at least 1. While Redis is away, the
    /// last number stays: it is needed then. Returns only if no Redis lists them.
    pub(super) async fn watch(&self) {
        let Some(redis) = &self.redis else { return };
        let mut ticks = base::ticks(LOOK_INTERVAL);
        let mut before = 0;
        loop {
            ticks.tick().await;
            // The poll of live rows logs why Redis does not answer.
            let Ok(mut live) = redis.instances().await else {
                self.words.lock().clear();
                continue;
            };
            live.retain(|instance| instance.age_us <= LIVE_US);
            let digest = self.rules.status.lock().digest.clone();
            *self.words.lock() = in_words(&self.name, &digest, &live);
            if self.is_share_counted {
                let live = u32::try_from(live.len()).unwrap_or(u32::MAX);
                // After an outage the reports are old, until each instance reports again within a second.
                self.local_share.store(live.max(before).max(1), Ordering::Relaxed);
                before = live;
            }
        }
    }
}

/// Says how many instances are live, and which of them use rules with another digest. `name`: this process.
fn in_words(name: &str, rules: &str, live: &[Instance]) -> String {
    let others = || live.iter().filter(|instance| instance.name != name);
    // A status of another release may not be readable.
    let has_these = |instance: &&Instance| {
        serde_json::from_str::<Value>(&instance.status).is_ok_and(|status| status["rules"] == rules)
    };
    let odd: Vec<&str> = others().filter(|other| !has_these(other)).map(|other| &*other.name).collect();
    let instances = others().count() + 1;
    match &odd[..] {
        _ if instances == 1 => "1 instance".to_owned(),
        [] => format!("{instances} instances, all with these rules"),
        [_, _, _, _, ..] => format!("{instances} instances, {} with other rules: see /fleet", odd.len()),
        few => format!("{instances} instances, {} with other rules: {}", few.len(), few.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(name: &str, status: &str) -> Instance {
        Instance { name: name.to_owned(), age_us: 1, status: status.to_owned() }
    }

    #[test]
    fn the_line_names_those_with_other_rules() {
        let same = |name: &str| instance(name, r#"{"rules": "4f2a91c07be3"}"#);
        let odd = |name: &str| instance(name, r#"{"rules": "0a11b2c3d4e5"}"#);
        // (the live instances, the line of "a")
        let table = [
            (vec![], "1 instance"),
            (vec![odd("a")], "1 instance"),
            (vec![same("a"), same("b"), same("c")], "3 instances, all with these rules"),
            // Redis does not list the own report yet.
            (vec![same("b")], "2 instances, all with these rules"),
            (vec![same("a"), odd("b"), same("c")], "3 instances, 1 with other rules: b"),
            (vec![same("a"), odd("b"), instance("c", "?")], "3 instances, 2 with other rules: b, c"),
            (["b", "c", "d", "e"].map(odd).into(), "5 instances, 4 with other rules: see /fleet"),
        ];
        for (live, line) in table {
            assert_eq!(in_words("a", "4f2a91c07be3", &live), line, "{live:?}");
        }
    }
}
