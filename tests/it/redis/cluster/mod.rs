//! The Redis store on a real Redis Cluster: which node decides what, what is exact over several slots, and (in `moves`,
//! `failover`) what callers see while slots move and nodes die.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratelimitd::clock::monotonic;
use ratelimitd::engine::algorithm::Kernel;
use ratelimitd::engine::{Charges, Cost, Reset, Store, StoreError};
use ratelimitd::store::redis::{BreakerTransition, RedisObserver, RedisOptions, RedisStore, Topology};

use crate::redis::{add, admitted, ask, kernels, one, patient, remaining, store};
use crate::support::redis::cluster::{Cluster, run};
use crate::support::redis::{Redis, parsed};
use crate::support::wait;

mod contract;
pub(crate) mod failover;
mod moves;

/// Options under which no decision of a busy test machine is late.
fn unhurried(cluster: &Cluster) -> RedisOptions {
    RedisOptions { topology: Topology::Cluster, urls: parsed(cluster.urls()), ..patient("redis://unused") }
}

fn clustered(cluster: &Cluster) -> RedisStore {
    store(&unhurried(cluster))
}

/// Keys whose slots are on different nodes, as the engine would spell them.
fn apart(cluster: &Cluster) -> [String; 3] {
    [0, 1, 2].map(|home| {
        let key = |n: u32| format!("{{edge|tenant={n}}}");
        (0..).map(key).find(|key| cluster.home(key) == home).expect("some key lives there")
    })
}

#[tokio::test]
async fn decisions_are_spread_over_all_primaries() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    let (_, kernel) = kernels(3)[0];
    for n in 0..300 {
        let key = format!("{{edge|user={n}}}");
        ask(&store, kernel, &key, Cost::take(1)).await.expect("the cluster decides");
        assert_eq!(remaining(&store, kernel, &key).await, 2);
    }
    let sizes: Vec<u64> = cluster.nodes().iter().map(|node| run(node, &["DBSIZE"])).collect();
    assert_eq!(sizes.iter().sum::<u64>(), 300);
    assert!(sizes.iter().all(|size| *size > 50), "{sizes:?}");
    for key in apart(&cluster) {
        let charges = one(kernel, &key, Cost::take(2));
        store.decide(&charges).await.expect("the cluster decides");
        assert_eq!(store.reset(&charges).await, Ok(vec![true]));
        assert_eq!(remaining(&store, kernel, &key).await, 3);
    }
    assert_eq!(store.ping().await, Ok(()));
    store.shutdown().await.expect("no task died");
    assert!(matches!(store.ping().await, Err(StoreError::Unreachable(_))));
}

#[test]
fn stores_that_share_a_cluster_admit_exactly_the_limit() {
    let cluster = Cluster::start();
    let [here, there, _] = apart(&cluster);
    for (name, kernel) in kernels(100) {
        let single = one(kernel, &format!("{here}{name}"), Cost::take(1));
        // The wide limit is reserved for each of the 2,000 and given back for 1,900.
        let mut several = Charges::default();
        add(&mut several, kernel, &format!("{here}{name} of two"), Cost::take(1));
        add(&mut several, kernels(10_000)[0].1, &format!("{there}{name} of two"), Cost::take(2));
        for charges in [single, several] {
            assert_eq!(by_two_workers(&cluster, &charges), 100, "{name}: {} slots", charges.len());
        }
        let left = block_on(async {
            remaining(&clustered(&cluster), kernels(10_000)[0].1, &format!("{there}{name} of two")).await
        });
        assert_eq!(left, 10_000 - 200, "{name}: what was held back is given back");
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// 2,000 calls at once from two stores on threads of their own; how many were admitted.
fn by_two_workers(cluster: &Cluster, charges: &Charges) -> usize {
    let worker = || block_on(async { admitted(&clustered(cluster), charges, 1_000).await });
    std::thread::scope(|scope| {
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.map(|worker| worker.join().expect("a worker ends")).iter().sum()
    })
}

/// Where both limits run out at the same time, requests may meet reservations of others that are then held back. So
/// fewer may be admitted at once, never more; and what is left is there for whoever asks next.
#[test]
fn limits_that_run_out_together_are_never_exceeded() {
    let cluster = Cluster::start();
    let [here, there, elsewhere] = apart(&cluster);
    for (name, kernel) in kernels(100) {
        let mut all = Charges::default();
        for place in [&here, &there, &elsewhere] {
            add(&mut all, kernel, &format!("{place}{name}"), Cost::take(1));
        }
        let at_once = by_two_workers(&cluster, &all);
        let after = block_on(async {
            let store = clustered(&cluster);
            let mut after = 0;
            while admitted(&store, &all, 1).await == 1 {
                after += 1;
            }
            after
        });
        // With GCRA an undo leaves out the time since its grant; added up over all who were held back, a unit at most.
        let (admitted, least) = (at_once + after, if name.starts_with("gcra") { 99 } else { 100 });
        assert!((least..=100).contains(&admitted), "{name}: {admitted}, {at_once} at once");
    }
}

#[tokio::test]
async fn one_seed_that_answers_is_enough() {
    let cluster = Cluster::start();
    let dead: Vec<Redis> = (0..3)
        .map(|_| {
            let mut redis = Redis::start();
            redis.stop();
            redis
        })
        .collect();
    let mut urls: Vec<String> = dead.iter().map(Redis::url).collect();
    urls.push(cluster.nodes()[1].url());
    let store = store(&RedisOptions { urls: parsed(urls), ..unhurried(&cluster) });
    let (_, kernel) = kernels(3)[0];
    for key in apart(&cluster) {
        assert!(ask(&store, kernel, &key, Cost::take(1)).await.is_ok(), "{key}");
    }
}

#[tokio::test]
async fn without_a_seed_decisions_fail_and_its_arrival_is_noticed() {
    let cluster = Cluster::start();
    let mut standalone = Redis::start();
    standalone.stop();
    let urls = parsed([standalone.url()]);
    let options = RedisOptions { urls, timeout: Duration::from_millis(500), ..unhurried(&cluster) };
    let store = store(&options);
    let (_, kernel) = kernels(1_000_000)[0];
    let nobody = ask(&store, kernel, "key", Cost::take(1)).await;
    assert!(matches!(nobody, Err(StoreError::Unreachable(_))), "{nobody:?}");

    // A server that is no cluster is none however well it answers.
    standalone.restart();
    let refused =
        wait::until_async(wait::PATIENCE, async || match ask(&store, kernel, "key", Cost::take(1)).await {
            Err(StoreError::Refused(reason)) => Some(reason),
            _ => None,
        });
    assert!(refused.await.expect("the reason").contains("cluster support disabled"));
}

/// Counts the undos that are lost.
#[derive(Default)]
struct Lost(AtomicUsize);

impl RedisObserver for Lost {
    fn batch(&self, _requests: usize) {}
    fn queue_depth(&self, _requests: usize) {}
    fn breaker(&self, _turn: BreakerTransition<'_>) {}
    fn lost_undo(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_hung_node_keeps_only_its_own_callers_waiting_and_a_lost_undo_is_counted() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let mut cluster = Cluster::start();
    let [here, hung, well] = apart(&cluster);
    let (_, kernel) = kernels(u64::from(u32::MAX))[0];
    let lost = Arc::new(Lost::default());
    let options = RedisOptions { timeout: PATIENCE, ..unhurried(&cluster) };
    let store = RedisStore::new(&options, Arc::clone(&lost) as Arc<dyn RedisObserver>).expect("good options");
    for key in [&here, &hung, &well] {
        assert_eq!(remaining(&store, kernel, key).await, u64::from(u32::MAX));
    }
    cluster.hang(1);
    let mut both = Charges::default();
    add(&mut both, kernel, &here, Cost::take(1));
    add(&mut both, kernel, &hung, Cost::take(1));
    let (waiting, undisturbed, _) = tokio::join!(store.decide(&both), quick(&store, kernel, &well), async {
        let recorded = wait::until_async(PATIENCE, async || {
            (run::<u64>(&cluster.nodes()[0], &["DBSIZE"]) == 1).then_some(())
        });
        recorded.await.expect("the part whose node is well is recorded");
        cluster.stop(0);
    });
    assert!(waiting.is_err(), "{waiting:?}");
    assert!(undisturbed < PATIENCE / 2, "{undisturbed:?}");
    let counted =
        wait::until_async(wait::PATIENCE, async || (lost.0.load(Ordering::Relaxed) == 1).then_some(()));
    assert!(counted.await.is_some(), "the undo is lost with its node");
}

/// The slowest of many decisions one after the other.
async fn quick(store: &RedisStore, kernel: Kernel, key: &str) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..500 {
        let start = monotonic();
        ask(store, kernel, key, Cost::take(1)).await.expect("this node is well");
        slowest = slowest.max(start.elapsed());
    }
    slowest
}

/// A multi-slot request of which one node is away fails as a whole, and takes nothing from the others.
#[tokio::test]
async fn a_request_that_fails_in_one_slot_takes_nothing_in_the_others() {
    let mut cluster = Cluster::start();
    let options = RedisOptions { timeout: Duration::from_secs(1), ..unhurried(&cluster) };
    let store = store(&options);
    let [here, there, _] = apart(&cluster);
    for (name, kernel) in kernels(10) {
        assert_eq!(remaining(&store, kernel, &format!("{here}{name}")).await, 10);
    }
    cluster.stop(1);
    for (name, kernel) in kernels(10) {
        let mut both = Charges::default();
        add(&mut both, kernel, &format!("{here}{name}"), Cost::take(4));
        add(&mut both, kernel, &format!("{there}{name}"), Cost::take(4));
        assert!(store.decide(&both).await.is_err(), "{name}");
        let given_back = wait::until_async(wait::PATIENCE, async || {
            (remaining(&store, kernel, &format!("{here}{name}")).await == 10).then_some(())
        });
        assert!(given_back.await.is_some(), "{name}");
    }
}
