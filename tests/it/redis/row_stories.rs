//! Random stories of three instances that set and remove rows, are cut off from Redis, and meet a Redis that loses rows
//! or goes back to an older copy, a cluster whose slot moves and whose node dies, or Sentinels that promote the
//! replica. In the end all have the same rows, and no acknowledged change is lost.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ::base::clock::{Clock, ManualClock, SystemClock};
use ::store::redis::RedisOptions;
use fastrand::Rng;
use ratelimitd::decide::limiter::Rulebook;
use ratelimitd::live::{Author, Keeper, ListRows, LiveExceptions, LiveOptions};
use ratelimitd::telemetry::metrics::Metrics;
use serde_json::json;

use super::cluster::cluster_options;
use super::rows::{CHANGES, INSTANCES, ROWS, all_rows};
use super::{patient_options, sentinel, store};
use crate::rules;
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, run};
use crate::support::redis::proxy::Proxy;
use crate::support::redis::sentinel::Monitored;
use crate::support::wait;

const STORIES: u64 = 10;
/// Starting a cluster, or Sentinels, takes seconds. So does a failover, of which each story has one.
const STORIES_OF_SEVERAL_SERVERS: u64 = 2;
const STEPS: usize = 40;
const KEYS: [&str; 3] = [ROWS, CHANGES, INSTANCES];
const RULES: &str =
    "domain: shop\ndescriptors: [{ key: tenant, rate_limit: { unit: minute, requests_per_unit: 60 } }]";

const MINUTE_US: u64 = 60_000_000;
const DAY_US: u64 = 24 * 60 * MINUTE_US;
/// The instances begin this far behind Redis, so that rows can have ended long ago for both.
const BEHIND_US: u64 = 10 * DAY_US;

/// Where the rows are.
enum Servers {
    Alone(Redis),
    /// And the number of the node that has the slot of the rows. Replicas have the numbers from 3 on.
    Cluster(Cluster, usize),
    Sentinels(Monitored),
}

impl Servers {
    fn options(&self) -> RedisOptions {
        match self {
            Self::Alone(redis) => patient_options(&redis.url()),
            Self::Cluster(cluster, _) => cluster_options(cluster),
            Self::Sentinels(monitored) => sentinel::options(monitored),
        }
    }

    fn primary(&self) -> &Redis {
        match self {
            Self::Alone(redis) => redis,
            Self::Cluster(cluster, primary) => &cluster.nodes()[*primary],
            Self::Sentinels(monitored) if monitored.is_reported_primary(&monitored.replica) => {
                &monitored.replica
            }
            Self::Sentinels(monitored) => &monitored.primary,
        }
    }
}

struct Instance {
    live: LiveExceptions,
    /// `None`: clients find the servers themselves. If such an instance is cut off, nobody asks it.
    proxy: Option<Proxy>,
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
    servers: Servers,
    has_failed_over: bool,
    clock: Arc<ManualClock>,
    instances: Vec<Instance>,
    acknowledged: BTreeMap<String, Acknowledged>,
    /// Key and serialised value of what a failover goes back to.
    copy: Vec<(&'static str, Vec<u8>)>,
    may_pass_a_week: bool,
    told: String,
}

impl Instance {
    fn start(servers: &Servers, name: usize, clock: &Arc<ManualClock>) -> Self {
        let proxy =
            if let Servers::Alone(redis) = servers { Some(Proxy::start(redis.address())) } else { None };
        let options = match &proxy {
            Some(proxy) => patient_options(&format!("redis://{}", proxy.address())),
            None => servers.options(),
        };
        let keeper = Keeper::Redis(store(&options));
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
        self.proxy.iter().for_each(Proxy::restore);
        self.is_cut_off = false;
    }

    fn is_asked(&self) -> bool {
        self.proxy.is_some() || !self.is_cut_off
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
    fn new(seed: u64, servers: Servers) -> Self {
        let clock = Arc::new(ManualClock::at(SystemClock.now_us() - BEHIND_US));
        let instances = (0..3).map(|name| Instance::start(&servers, name, &clock)).collect();
        Self {
            rng: Rng::with_seed(seed),
            servers,
            has_failed_over: false,
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
                18 => self.go_back_or_on(),
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
        if !self.instances[instance].is_asked() {
            return;
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
        if !self.instances[instance].is_asked() {
            return;
        }
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
        if self.instances[instance].is_asked() {
            self.instances[instance].live.tick().await;
        }
    }

    fn cut_off(&mut self) {
        let instance = self.rng.usize(0..3);
        self.tell(format_args!("{instance} is cut off"));
        let instance = &mut self.instances[instance];
        instance.proxy.iter().for_each(|proxy| {
            proxy.refuse();
            proxy.cut();
        });
        instance.is_cut_off = true;
    }

    fn reconnect_one(&mut self) {
        let instance = self.rng.usize(0..3);
        self.tell(format_args!("{instance} is connected"));
        self.instances[instance].reconnect();
    }

    fn lose(&mut self, keys: &[&'static str]) {
        self.tell(format_args!("Redis loses {keys:?}"));
        self.servers.primary().run::<()>(&[&["DEL"], keys].concat()).expect("DEL");
    }

    fn take_copy(&mut self) {
        self.tell(format_args!("a copy is taken"));
        let dump = |key| self.servers.primary().run::<Option<Vec<u8>>>(&["DUMP", key]).expect("DUMP");
        self.copy = KEYS.into_iter().filter_map(|key| Some((key, dump(key)?))).collect();
    }

    fn go_back_or_on(&mut self) {
        match &self.servers {
            Servers::Alone(_) => self.go_back(),
            Servers::Cluster(_, node) if !self.has_failed_over && self.rng.bool() => self.move_slot(*node),
            Servers::Cluster(..) | Servers::Sentinels(_) => self.fail_over(),
        }
    }

    fn move_slot(&mut self, from: usize) {
        let Servers::Cluster(cluster, node) = &mut self.servers else { return };
        let to = (from + 1) % 3;
        let slot = run::<u16>(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", ROWS]).to_string();
        cluster.begin_move(&slot, from, to);
        while cluster.move_some(&slot, from, to) {}
        cluster.end_move(&slot, from, to);
        *node = to;
        self.tell(format_args!("the slot has moved to node {to}"));
    }

    /// The primary dies, or is demoted. The replica may lack its last writes.
    fn fail_over(&mut self) {
        if std::mem::replace(&mut self.has_failed_over, true) {
            return;
        }
        let is_planned = self.rng.bool();
        match &mut self.servers {
            Servers::Alone(_) => {}
            Servers::Cluster(cluster, node) => {
                cluster.stop(*node);
                *node += 3;
                wait::expect("the replica's promotion", || cluster.is_primary(*node));
            }
            Servers::Sentinels(monitored) => {
                if is_planned {
                    monitored.fail_over();
                } else {
                    monitored.primary.stop();
                }
                wait::expect("the replica's promotion", || monitored.is_reported_primary(&monitored.replica));
            }
        }
        self.tell(format_args!("the replica has taken over"));
    }

    fn go_back(&mut self) {
        self.tell(format_args!("Redis goes back to the copy"));
        let client = redis::Client::open(self.servers.primary().url()).expect("a URL");
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
            for instance in self.instances.iter().filter(|instance| instance.is_asked()) {
                instance.live.tick().await;
            }
        }
    }

    async fn check_end(mut self) {
        if !matches!(self.servers, Servers::Alone(_)) {
            self.fail_over();
        }
        self.instances.iter_mut().for_each(Instance::reconnect);
        if self.has_failed_over {
            // Until clients know the new primary, calls fail.
            let reader = store(&self.servers.options());
            let equal = wait::until_async(wait::PATIENCE, async || {
                self.poll_all(1).await;
                let page = reader.poll_rows(0, "it", "").await.ok()?;
                let rows = page.rows.into_iter().filter(|row| row.json.is_some());
                let rows: BTreeMap<_, _> = rows.map(|row| (row.id, row.version)).collect();
                let is_equal = |instance: &Instance| {
                    let here = instance.rows().into_iter();
                    here.map(|(id, version, _)| (id, version)).eq(rows.clone())
                };
                self.instances.iter().all(is_equal).then_some(())
            });
            assert!(equal.await.is_some(), "{}", self.told);
        }
        self.poll_all(4).await;
        let rows = self.instances[0].rows();
        for instance in &self.instances[1..] {
            assert_eq!(instance.rows(), rows, "{}", self.told);
        }
        let all = all_rows(&store(&self.servers.options())).await;
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
        Story::new(seed, Servers::Alone(Redis::start())).play().await;
    }
}

#[tokio::test]
async fn instances_agree_with_a_cluster_whose_slot_moves_and_whose_node_dies() {
    for seed in 0..STORIES_OF_SEVERAL_SERVERS {
        let cluster = Cluster::with_replicas();
        let node = cluster.primary_of(ROWS);
        Story::new(seed, Servers::Cluster(cluster, node)).play().await;
    }
}

#[tokio::test]
async fn instances_agree_with_sentinels_that_promote_the_replica() {
    for seed in 0..STORIES_OF_SEVERAL_SERVERS {
        Story::new(seed, Servers::Sentinels(Monitored::start())).play().await;
    }
}
