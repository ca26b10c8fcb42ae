//! Random stories of three instances that set and remove rows, are cut off from Redis, and meet a Redis that loses rows
//! or goes back to an older copy. In the end all have the same rows, and no acknowledged change is lost.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ::base::clock::{Clock, ManualClock, SystemClock};
use fastrand::Rng;
use ratelimitd::decide::limiter::Rulebook;
use ratelimitd::live::{Author, Keeper, ListRows, LiveExceptions, LiveOptions};
use ratelimitd::telemetry::metrics::Metrics;
use serde_json::json;

use super::rows::{CHANGES, INSTANCES, ROWS, all_rows};
use super::{patient_options, store};
use crate::rules;
use crate::support::redis::Redis;
use crate::support::redis::proxy::Proxy;

const STORIES: u64 = 10;
const STEPS: usize = 40;
const KEYS: [&str; 3] = [ROWS, CHANGES, INSTANCES];
const RULES: &str =
    "domain: shop\ndescriptors: [{ key: tenant, rate_limit: { unit: minute, requests_per_unit: 60 } }]";

const MINUTE_US: u64 = 60_000_000;
const DAY_US: u64 = 24 * 60 * MINUTE_US;
/// The instances begin this far behind Redis, so that rows can have ended long ago for both.
const BEHIND_US: u64 = 10 * DAY_US;

struct Instance {
    live: LiveExceptions,
    proxy: Proxy,
    is_cut_off: bool,
}

/// The last change of a value that an instance has acknowledged.
#[derive(Clone, Debug)]
struct Acknowledged {
    version: u64,
    /// End of the row, microseconds since the epoch, if it has one.
    until_us: Option<u64>,
    is_removed: bool,
}

struct Story {
    rng: Rng,
    redis: Redis,
    clock: Arc<ManualClock>,
    instances: Vec<Instance>,
    acknowledged: BTreeMap<String, Acknowledged>,
    /// Key and serialised value of what a failover goes back to.
    copy: Vec<(&'static str, Vec<u8>)>,
    may_pass_a_week: bool,
    told: String,
}

impl Instance {
    fn start(redis: &Redis, name: usize, clock: &Arc<ManualClock>) -> Self {
        let proxy = Proxy::start(redis.address());
        let keeper = Keeper::Redis(store(&patient_options(&format!("redis://{}", proxy.address()))));
        let metrics = Metrics::new(800_000).expect("the metrics have different names");
        let live = LiveExceptions::new(LiveOptions {
            keeper,
            rulebook: Arc::new(Rulebook::new(rules::rules(RULES), metrics.clone())),
            metrics,
            clock: Arc::clone(clock) as Arc<dyn Clock>,
            on_change: Box::new(|| {}),
            mask: Arc::new(|_, _, value| value.to_owned()),
            confirmed_at: Arc::default(),
            instance: format!("instance {name}"),
            status: Arc::new(|_version| "{}".to_owned()),
        });
        Self { live, proxy, is_cut_off: false }
    }

    fn reconnect(&mut self) {
        self.proxy.restore();
        self.is_cut_off = false;
    }

    /// Id, version and state of each row.
    fn rows(&self) -> Vec<(String, u64, &'static str)> {
        let (rows, has_more) = self.live.list(&ListRows { ended: true, ..ListRows::default() });
        assert!(!has_more);
        rows.into_iter().map(|row| (row.id, row.version.parse().expect("a version"), row.state)).collect()
    }
}

fn author() -> Author {
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Author { reason: Some("a story".to_owned()), by: None, peer }
}

impl Story {
    fn new(seed: u64) -> Self {
        let redis = Redis::start();
        let clock = Arc::new(ManualClock::at(SystemClock.now_us() - BEHIND_US));
        let instances = (0..3).map(|name| Instance::start(&redis, name, &clock)).collect();
        Self {
            rng: Rng::with_seed(seed),
            redis,
            clock,
            instances,
            acknowledged: BTreeMap::new(),
            copy: Vec::new(),
            may_pass_a_week: true,
            told: format!("story {seed}:\n"),
        }
    }

    fn tell(&mut self, step: fmt::Arguments<'_>) {
        writeln!(self.told, "{step}").expect("text");
    }

    async fn play(mut self) {
        for _ in 0..STEPS {
            match self.rng.u8(0..20) {
                0..7 => self.set().await,
                7..9 => self.remove().await,
                9..12 => self.poll().await,
                12 | 13 => self.cut_off(),
                14 => self.reconnect_one(),
                15 => self.lose(&KEYS),
                16 => {
                    let key = self.rng.usize(0..2);
                    self.lose(&KEYS[key..=key]);
                }
                17 => self.take_copy(),
                18 => self.fail_over(),
                _ => self.time_passes().await,
            }
        }
        self.check_end().await;
    }

    async fn set(&mut self) {
        let (instance, value) = (self.rng.usize(0..3), self.rng.u8(0..6).to_string());
        let minutes: Option<u64> = self.rng.choice([None, Some(10), Some(60), Some(10_000)]).flatten();
        let mut row =
            json!({"domain": "shop", "key": "tenant", "value": value, "limit": self.rng.u32(1..1_000)});
        if let Some(minutes) = minutes {
            row["until"] = format!("{minutes}m").into();
        }
        let until_us = minutes.map(|minutes| self.clock.now_us() + minutes * MINUTE_US);
        let set = self.instances[instance].live.set(vec![row], &author()).await;
        self.tell(format_args!("{instance} sets {value} for {minutes:?}: {}", set.is_ok()));
        assert!(set.is_err() || !self.instances[instance].is_cut_off, "{}", self.told);
        if let Ok([row]) = set.as_deref() {
            let version = row.version.parse().expect("a version");
            self.acknowledge(&row.id, Acknowledged { version, until_us, is_removed: false });
        }
    }

    async fn remove(&mut self) {
        let (instance, value) = (self.rng.usize(0..3), self.rng.u8(0..6).to_string());
        let row = json!({"domain": "shop", "key": "tenant", "value": value});
        let removed = self.instances[instance].live.remove(vec![row], &[], &author()).await;
        self.tell(format_args!("{instance} removes {value}: {}", removed.is_ok()));
        for row in removed.iter().flatten() {
            let version = row.version.parse().expect("a version");
            self.acknowledge(&row.id, Acknowledged { version, until_us: None, is_removed: true });
        }
    }

    fn acknowledge(&mut self, id: &str, change: Acknowledged) {
        let before = self.acknowledged.insert(id.to_owned(), change.clone());
        let rises = before.is_none_or(|before| before.version < change.version);
        assert!(rises, "{}{id} has a version that does not rise", self.told);
    }

    async fn poll(&mut self) {
        let instance = self.rng.usize(0..3);
        self.tell(format_args!("{instance} polls"));
        self.instances[instance].live.tick().await;
    }

    fn cut_off(&mut self) {
        let instance = self.rng.usize(0..3);
        self.tell(format_args!("{instance} is cut off"));
        let instance = &mut self.instances[instance];
        instance.proxy.refuse();
        instance.proxy.cut();
        instance.is_cut_off = true;
    }

    fn reconnect_one(&mut self) {
        let instance = self.rng.usize(0..3);
        self.tell(format_args!("{instance} is connected"));
        self.instances[instance].reconnect();
    }

    fn lose(&mut self, keys: &[&'static str]) {
        self.tell(format_args!("Redis loses {keys:?}"));
        self.redis.run::<()>(&[&["DEL"], keys].concat()).expect("DEL");
    }

    fn take_copy(&mut self) {
        self.tell(format_args!("a copy is taken"));
        let dump = |key| self.redis.run::<Option<Vec<u8>>>(&["DUMP", key]).expect("DUMP");
        self.copy = KEYS.into_iter().filter_map(|key| Some((key, dump(key)?))).collect();
    }

    fn fail_over(&mut self) {
        self.tell(format_args!("Redis goes back to the copy"));
        let client = redis::Client::open(self.redis.url()).expect("a URL");
        let mut connection = client.get_connection().expect("a connection");
        redis::cmd("DEL").arg(&KEYS).query::<()>(&mut connection).expect("DEL");
        for (key, value) in &self.copy {
            redis::cmd("RESTORE").arg(key).arg(0).arg(value).query::<()>(&mut connection).expect("RESTORE");
        }
    }

    /// Usually minutes. Once in a story more than a week, in which every instance polls.
    async fn time_passes(&mut self) {
        let is_week = self.may_pass_a_week && self.rng.bool();
        self.tell(format_args!("{} passes", if is_week { "a week" } else { "half an hour" }));
        if !is_week {
            return self.clock.set(self.clock.now_us() + 30 * MINUTE_US);
        }
        self.may_pass_a_week = false;
        self.copy.clear();
        self.instances.iter_mut().for_each(Instance::reconnect);
        for _ in 0..3 {
            self.poll_all(2).await;
            self.clock.set(self.clock.now_us() + 3 * DAY_US);
        }
        self.poll_all(2).await;
    }

    async fn poll_all(&self, rounds: usize) {
        for _ in 0..rounds {
            for instance in &self.instances {
                instance.live.tick().await;
            }
        }
    }

    async fn check_end(mut self) {
        self.instances.iter_mut().for_each(Instance::reconnect);
        self.poll_all(4).await;
        let rows = self.instances[0].rows();
        for instance in &self.instances[1..] {
            assert_eq!(instance.rows(), rows, "{}", self.told);
        }
        let all = all_rows(&store(&patient_options(&self.redis.url()))).await;
        let stored = all.values().filter(|row| row.json.is_some()).map(|row| (row.id.clone(), row.version));
        let here: Vec<(String, u64)> = rows.iter().map(|(id, version, _)| (id.clone(), *version)).collect();
        assert_eq!(stored.collect::<Vec<_>>(), here, "{}", self.told);
        for (id, change) in &self.acknowledged {
            let row = rows.iter().find(|row| row.0 == *id);
            let has_ended = change.until_us.is_some_and(|until_us| until_us <= self.clock.now_us());
            let is_there = row.is_some_and(|row| row.1 == change.version);
            let is_right =
                if change.is_removed { row.is_none() } else { is_there || has_ended && row.is_none() };
            assert!(is_right, "{}{id}: {change:?}, {row:?}", self.told);
        }
    }
}

/// More by hand: `RATELIMITD_TEST_ROW_STORIES=300`.
#[tokio::test]
async fn instances_agree_and_lose_no_acknowledged_change() {
    #[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting of the program")]
    let stories = std::env::var("RATELIMITD_TEST_ROW_STORIES").ok().and_then(|text| text.parse().ok());
    for seed in 0..stories.unwrap_or(STORIES) {
        Story::new(seed).play().await;
    }
}
