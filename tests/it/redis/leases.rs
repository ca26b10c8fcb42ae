//! Units taken ahead, with real processes and a real Redis: never above the limit, and nothing stays lent.

use futures_util::future::join_all;

use crate::service::store_page::page;
use crate::support::grpc::{Code, Rls};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, wait};

const LIMIT: u64 = 1_000;
const RULES: &str = "
domain: d
descriptors:
  - { key: hot, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, lease: auto } }
";

fn start(redis: &Redis) -> Ratelimitd {
    Plan::new(RULES).redis(&redis.url()).set("store.redis.timeout", "5s").set("server.drain", "0s").start()
}

/// Sends this many calls over each of several connections, and counts the admitted ones.
async fn admitted(services: &[&Ratelimitd], connections: usize, calls: usize) -> u64 {
    let ports = services.iter().flat_map(|service| vec![service.grpc_port(); connections]);
    let each = ports.map(async |port| {
        let mut rls = Rls::connect(port).await;
        let mut admitted = 0;
        for _ in 0..calls {
            admitted += u64::from(rls.send_one("d", &[("hot", "x")]).await.0 == Code::Ok);
        }
        admitted
    });
    join_all(each).await.into_iter().sum()
}

fn held(service: &Ratelimitd) -> u64 {
    page(service)["redis"]["leases"]["held"].as_u64().expect("a number")
}

fn decisions(service: &Ratelimitd) -> u64 {
    page(service)["redis"]["leases"]["decisions"].as_u64().expect("a number")
}

fn expect_nothing_held(services: &[&Ratelimitd]) {
    wait::expect("unused units are returned", || services.iter().all(|service| held(service) == 0));
}

/// Sends calls until the limit is exhausted, and counts the admitted ones.
async fn admitted_until_exhausted(service: &Ratelimitd) -> u64 {
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut sum = 0;
    for _ in 0..2 * LIMIT {
        sum += u64::from(rls.send_one("d", &[("hot", "x")]).await.0 == Code::Ok);
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_admit_the_limit_and_never_more() {
    let redis = Redis::start();
    let (a, b) = (start(&redis), start(&redis));
    let first = admitted(&[&a, &b], 4, 100).await;
    assert_eq!(first, 800, "the limit is far away");
    expect_nothing_held(&[&a, &b]);
    assert_eq!(a.left("d", ("hot", "x")), LIMIT - first, "Redis counts what was admitted");
    let second = admitted(&[&a, &b], 4, 150).await;
    assert!(first + second <= LIMIT, "{first} and {second}");
    expect_nothing_held(&[&a, &b]);
    let mut all = first + second;
    // Denials are repeated for a second at most.
    let end = wait::until_async(wait::PATIENCE, async || {
        all += admitted(&[&a, &b], 1, 1).await;
        (all >= LIMIT).then_some(())
    });
    assert!(end.await.is_some(), "{all} of {LIMIT}");
    assert_eq!(all + admitted_until_exhausted(&a).await, LIMIT);
    assert!(decisions(&a) + decisions(&b) > 100, "{} and {}", decisions(&a), decisions(&b));
    let metrics = http::get(a.http_port(), "/metrics", &[]).expect("metrics").body;
    let units = |event: &str| {
        let start = format!("ratelimitd_lease_units_total{{event=\"{event}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start)).expect("the counter");
        line.parse::<u64>().expect("a number")
    };
    assert_eq!(units("granted"), units("spent") + units("returned") + units("lapsed"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_returns_its_units() {
    let redis = Redis::start();
    let (mut a, b) = (start(&redis), start(&redis));
    let first = admitted(&[&a], 4, 100).await;
    a.terminate();
    let status = a.wait_exit();
    assert!(status.success(), "{status}");
    assert_eq!(b.left("d", ("hot", "x")), LIMIT - first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_takes_at_most_what_it_held() {
    let redis = Redis::start();
    let (mut a, b) = (start(&redis), start(&redis));
    let first = admitted(&[&a, &b], 4, 60).await;
    a.kill();
    let all = first + admitted_until_exhausted(&b).await;
    assert!(all <= LIMIT, "{all}");
    // A process borrows at most a quarter of what is left.
    assert!(all >= LIMIT - LIMIT / 4, "{all}");
}

/// The units of a restarted Redis are dropped once the restart is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_redis_decisions_go_on() {
    let mut redis = Redis::start();
    let a = start(&redis);
    wait::expect("the description of the server", || page(&a)["redis"]["servers"][0].is_object());
    admitted(&[&a], 4, 60).await;
    redis.stop();
    redis.restart();
    wait::expect("the restart is noticed", || page(&a)["redis"]["restarts"] == 1);
    expect_nothing_held(&[&a]);
    wait::expect("Redis answers", || page(&a)["redis"]["answers"] == true);
    assert!(admitted_until_exhausted(&a).await <= LIMIT);
}
