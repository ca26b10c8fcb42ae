//! Limits with `scope: global`: service processes with a near Redis each, and a home 80 ms away. The tests count what
//! is admitted, and compare it with the limit, and with what home charged.

mod failover;
mod partitions;
mod readiness;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::cli::counters::counters_of;
use crate::redis::cluster::block_on;
use crate::service::store_page::page;
use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::proxy::Proxy;
use crate::support::wait::{self, EndAfter};

/// One way between a region and home.
const ONE_WAY: Duration = Duration::from_millis(40);
/// No test reaches this limit.
const FAR: u64 = 1_000_000_000;
/// Connections to each service.
const CONNECTIONS: u64 = 4;

const RULES: &str = "
domain: d
descriptors:
  - key: hot
    rate_limit: { unit: year, requests_per_unit: LIMIT, algorithm: fixed_window, scope: global, on_store_failure: deny }
  - { key: near, rate_limit: { unit: year, requests_per_unit: 1000000, algorithm: fixed_window } }
";

fn rules(limit: u64) -> String {
    RULES.replace("LIMIT", &limit.to_string())
}

/// A service with a near Redis, and its connection to home.
struct Region {
    service: Ratelimitd,
    to_home: Proxy,
    _near: Redis,
    admitted: AtomicU64,
    denied: AtomicU64,
}

impl Region {
    fn start(home: SocketAddr, rules: &str) -> Self {
        Self::start_with(home, rules, |plan| plan)
    }

    fn start_with(home: SocketAddr, rules: &str, set: impl FnOnce(Plan) -> Plan) -> Self {
        let (near, to_home) = (Redis::start(), Proxy::start(home));
        to_home.delay(ONE_WAY, ONE_WAY);
        let plan = Plan::new(rules).redis(&near.url()).set("store.redis.timeout", "5s");
        let plan = plan.set("store.redis.home.url", format!("redis://{}", to_home.address()));
        // The machine of the tests can be slow.
        let plan = plan.set("store.redis.home.timeout", "1s").set("server.drain", "0s");
        let (admitted, denied) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { service: set(plan).start(), to_home, _near: near, admitted, denied }
    }

    /// Ends a fault.
    fn heal(&self) {
        self.to_home.restore();
        self.to_home.delay(ONE_WAY, ONE_WAY);
    }

    /// Calls the hot key until `end`, over each of several connections.
    fn load(&self, end: &AtomicBool) {
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| block_on(self.call(end)));
            }
        });
    }

    /// Until the process is killed, too.
    async fn call(&self, end: &AtomicBool) {
        let mut rls = Rls::connect(self.service.grpc_port()).await;
        while !end.load(SeqCst) {
            let Ok(answer) = rls.send(request("d", vec![descriptor(&[("hot", "x")])])).await else { return };
            let count = if answer.overall_code() == Code::Ok { &self.admitted } else { &self.denied };
            count.fetch_add(1, SeqCst);
        }
    }

    fn admitted(&self) -> u64 {
        self.admitted.load(SeqCst)
    }

    fn leases(&self, number: &str) -> u64 {
        page(&self.service)["redis"]["leases"][number].as_u64().expect("a number")
    }

    fn held(&self) -> u64 {
        self.leases("held")
    }

    /// Waits until this many further calls are admitted.
    fn expect_admitted(&self, calls: u64) {
        let before = self.admitted();
        wait::expect("admitted calls", || self.admitted() >= before + calls);
    }

    /// Waits until further calls are denied.
    fn expect_denied(&self) {
        let before = self.denied.load(SeqCst);
        wait::expect("denied calls", || self.denied.load(SeqCst) > before + CONNECTIONS);
    }

    fn asks_failed(&self) -> u64 {
        self.metric("ratelimitd_lease_asks_total{result=\"failed\"} ")
    }

    /// The number after this start of a line.
    fn metric(&self, start: &str) -> u64 {
        let metrics = http::get(self.service.http_port(), "/metrics", &[]).expect("metrics").body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(start)).expect("the metric");
        line.parse().expect("a number")
    }
}

/// Loads all regions while `story` runs.
fn under_load<T>(regions: &[&Region], story: impl FnOnce() -> T) -> T {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for region in regions {
            scope.spawn(|| region.load(&end));
        }
        let _ends = EndAfter(&end);
        story()
    })
}

fn sum(regions: &[&Region]) -> u64 {
    regions.iter().map(|region| region.admitted()).sum()
}

/// Waits until each region holds many units, which a far limit allows.
fn wait_for_units(regions: &[&Region]) {
    wait::expect("units in each region", || regions.iter().all(|region| region.held() >= 1_000));
}

/// Waits until no region holds units. Returns what home charged to the hot key, if its limit is [`FAR`].
fn charged(regions: &[&Region]) -> u64 {
    wait::expect("unused units to return", || regions.iter().all(|region| region.held() == 0));
    let charged = FAR - regions[0].service.left("d", ("hot", "x"));
    assert!(charged < FAR, "home answers");
    charged
}

fn script_calls(home: &Redis) -> u64 {
    let stats: String = home.run(&["INFO", "commandstats"]).expect("INFO");
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| calls.split(',').next().and_then(|n| n.parse().ok()).expect("a number"))
}

#[test]
fn three_regions_admit_the_limit_and_never_more() {
    const LIMIT: u64 = 4_000;
    let home = Redis::start();
    let [a, b, c] = std::array::from_fn(|_| Region::start(home.address(), &rules(LIMIT)));
    let regions = [&a, &b, &c];
    let calls_for_half = under_load(&regions, || {
        wait::expect("decisions without home", || {
            regions.iter().all(|region| region.leases("decisions") > 50)
        });
        let (_, shown, _) = counters_of(&a.service, "d", &["show", "hot=x"]);
        assert!(shown.contains("\n  counted in home, for all regions\n"), "{shown}");
        wait::expect("half of the limit", || sum(&regions) >= LIMIT / 2);
        let calls = script_calls(&home);
        wait::expect("the limit", || sum(&regions) >= LIMIT);
        regions.iter().for_each(|region| region.expect_denied());
        calls
    });
    println!("{calls_for_half} calls of home for half of {LIMIT}");
    assert_eq!(sum(&regions), LIMIT);
    assert!(regions.iter().all(|region| region.admitted() > LIMIT / 20), "each region has a part");
    assert!(calls_for_half <= LIMIT / 4, "{calls_for_half}");
    assert_eq!(a.service.left("d", ("near", "x")), 1_000_000, "other limits are in the near Redis");
    let shown = page(&a.service);
    assert_eq!(shown["redis"]["home"]["topology"], "standalone", "{shown}");
    assert!(shown["redis"]["nodes"]["home"]["closed"].is_u64(), "{shown}");
}

/// `a` cannot reach home for a while, or does not hear it.
fn partition_while_units_are_held(fault: impl Fn(&Proxy)) {
    let home = Redis::start();
    let [a, b] = std::array::from_fn(|_| Region::start(home.address(), &rules(FAR)));
    let regions = [&a, &b];
    let (before, denied_after) = under_load(&regions, || {
        wait_for_units(&regions);
        let before = a.admitted();
        fault(&a.to_home);
        a.expect_denied();
        let denied_after = a.admitted();
        b.expect_admitted(200);
        assert!(a.admitted() <= denied_after + CONNECTIONS, "nothing is left to spend");
        a.heal();
        a.expect_admitted(200);
        (before, denied_after)
    });
    let (all, charged) = (sum(&regions), charged(&regions));
    println!("{} admitted after the cut; {all} in sum, {charged} charged", denied_after - before);
    assert!(denied_after - before > CONNECTIONS, "units were held");
    assert!(all <= charged, "{all} admitted, and {charged} charged");
}

#[test]
fn a_region_without_home_spends_what_it_holds_and_then_denies() {
    partition_while_units_are_held(Proxy::blackhole);
}

#[test]
fn a_region_that_does_not_hear_home_spends_no_unit_of_a_lost_answer() {
    partition_while_units_are_held(Proxy::hold_answers);
}

#[test]
fn a_killed_process_takes_at_most_what_it_held() {
    const LIMIT: u64 = 4_000;
    let home = Redis::start();
    let [a, b] = std::array::from_fn(|_| Region::start(home.address(), &rules(LIMIT)));
    under_load(&[&a, &b], || {
        wait::expect("units of the process", || a.held() >= 50);
        a.service.signal(&["KILL"]);
        let is_over = || {
            let before = b.admitted();
            b.expect_denied();
            b.admitted() == before
        };
        wait::expect("the limit", is_over);
    });
    let all = a.admitted() + b.admitted();
    println!("{all} of {LIMIT} after the kill");
    assert!(all <= LIMIT, "{all}");
    // A process borrows at most a quarter of what is left.
    assert!(all >= LIMIT - LIMIT / 4 - CONNECTIONS, "{all}");
}

/// Home forgets everything. What it charged afterwards, and the units held before, bound what is admitted.
#[test]
fn after_a_restart_of_home_old_units_are_dropped() {
    let mut home = Redis::start();
    let [a, b] = std::array::from_fn(|_| Region::start(home.address(), &rules(FAR)));
    let regions = [&a, &b];
    let described = |region: &Region| {
        let shown = page(&region.service);
        shown["redis"]["servers"].as_array().is_some_and(|servers| servers.len() == 2)
    };
    wait::expect("the descriptions of the servers", || regions.iter().all(|region| described(region)));
    let (held, before) = under_load(&regions, || {
        wait_for_units(&regions);
        home.stop();
        // One ask of a process is under way. Once it failed, no unit is granted before the restart.
        wait::expect("failed asks", || regions.iter().all(|region| region.asks_failed() > 0));
        let held: u64 = regions.iter().map(|region| region.held()).sum();
        let before = sum(&regions);
        home.restart();
        let noticed = |region: &Region| page(&region.service)["redis"]["restarts"] == 1;
        wait::expect("the restart is noticed", || regions.iter().all(|region| noticed(region)));
        regions.iter().for_each(|region| region.expect_admitted(200));
        (held, before)
    });
    let (after, charged) = (sum(&regions) - before, charged(&regions));
    println!("{after} admitted after the restart, {charged} charged by then, {held} held before it");
    assert!(after <= charged + held + 2 * CONNECTIONS, "{after} admitted, {charged} charged, {held} held");
}
