//! The Redis store on a real Redis Cluster: which node decides, which limits are exact over several slots, and (in
//! `moves`, `failover`) what callers see while slots move and nodes die.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::base::clock::monotonic;
use ::store::observer::Observer;
use ::store::redis::{RedisOptions, RedisStore, Topology};
use engine::algorithm::Kernel;
use engine::{Charges, Cost, Reset, Store, StoreError};

use crate::redis::{
    add_charge, count_admitted, decide_one, kernels, one_charge, patient_options, remaining, store,
};
use crate::support::redis::cluster::{Cluster, run};
use crate::support::redis::{Redis, parsed};
use crate::support::wait;

pub(crate) mod failover;
mod moves;
mod stories;

/// [`patient_options`] for a cluster.
pub(super) fn cluster_options(cluster: &Cluster) -> RedisOptions {
    RedisOptions {
        topology: Topology::Cluster,
        urls: parsed(cluster.urls()),
        ..patient_options("redis://unused")
    }
}

pub(super) fn cluster_store(cluster: &Cluster) -> RedisStore {
    store(&cluster_options(cluster))
}

/// One key for each primary, in the format of the engine.
pub(super) fn keys_on_each_primary(cluster: &Cluster) -> [String; 3] {
    [0, 1, 2].map(|primary| {
        let key = |n: u32| format!("{{edge|tenant={n}}}");
        (0..).map(key).find(|key| cluster.primary_of(key) == primary).expect("a key of this primary")
    })
}

#[tokio::test]
async fn decisions_are_spread_over_all_primaries() {
    let cluster = Cluster::start();
    let store = cluster_store(&cluster);
    let (_, kernel) = kernels(3)[0];
    for n in 0..300 {
        let key = format!("{{edge|user={n}}}");
        decide_one(&store, kernel, &key, Cost::take(1)).await.expect("the cluster decides");
        assert_eq!(remaining(&store, kernel, &key).await, 2);
    }
    let sizes: Vec<u64> = cluster.nodes().iter().map(|node| run(node, &["DBSIZE"])).collect();
    assert_eq!(sizes.iter().sum::<u64>(), 300);
    assert!(sizes.iter().all(|size| *size > 50), "{sizes:?}");
    for key in keys_on_each_primary(&cluster) {
        let charges = one_charge(kernel, &key, Cost::take(2));
        store.decide(&charges).await.expect("the cluster decides");
        assert_eq!(store.reset(&charges).await, Ok(vec![true]));
        assert_eq!(remaining(&store, kernel, &key).await, 3);
    }
    assert_eq!(store.probe().await, Ok(()));
    store.shutdown().await.expect("no task died");
    assert!(matches!(store.probe().await, Err(StoreError::Unreachable(_))));
}

#[test]
fn stores_that_share_a_cluster_admit_exactly_the_limit() {
    let cluster = Cluster::start();
    let [first, second, _] = keys_on_each_primary(&cluster);
    for (name, kernel) in kernels(100) {
        let single = one_charge(kernel, &format!("{first}{name}"), Cost::take(1));
        // Each of the 2,000 requests reserves units of the wide limit, and 1,900 of them return the units.
        let mut several = Charges::default();
        add_charge(&mut several, kernel, &format!("{first}{name} of two"), Cost::take(1));
        add_charge(&mut several, kernels(10_000)[0].1, &format!("{second}{name} of two"), Cost::take(2));
        for charges in [single, several] {
            assert_eq!(admitted_to_two_workers(&cluster, &charges), 100, "{name}: {} slots", charges.len());
        }
        let left = block_on(async {
            remaining(&cluster_store(&cluster), kernels(10_000)[0].1, &format!("{second}{name} of two")).await
        });
        assert_eq!(left, 10_000 - 200, "{name}: the units of denied requests are returned");
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Sends 2,000 concurrent requests from two stores, each on its own thread. Returns how many were admitted.
fn admitted_to_two_workers(cluster: &Cluster, charges: &Charges) -> usize {
    let worker = || block_on(async { count_admitted(&cluster_store(cluster), charges, 1_000).await });
    std::thread::scope(|scope| {
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.map(|worker| worker.join().expect("a worker ends")).iter().sum()
    })
}

/// If several limits run out at the same time, a request can be denied because of a reservation that is undone later.
/// So fewer requests may be admitted at first, never more. Later requests get the remaining units.
#[test]
fn limits_that_run_out_together_are_never_exceeded() {
    let cluster = Cluster::start();
    let [first, second, third] = keys_on_each_primary(&cluster);
    for (name, kernel) in kernels(100) {
        let mut all = Charges::default();
        for place in [&first, &second, &third] {
            add_charge(&mut all, kernel, &format!("{place}{name}"), Cost::take(1));
        }
        let at_once = admitted_to_two_workers(&cluster, &all);
        let after = block_on(async {
            let store = cluster_store(&cluster);
            let mut after = 0;
            while count_admitted(&store, &all, 1).await == 1 {
                after += 1;
            }
            after
        });
        // With GCRA an undo does not return the time since the grant: at most one unit over all undone requests.
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
    let store = store(&RedisOptions { urls: parsed(urls), ..cluster_options(&cluster) });
    let (_, kernel) = kernels(3)[0];
    for key in keys_on_each_primary(&cluster) {
        assert!(decide_one(&store, kernel, &key, Cost::take(1)).await.is_ok(), "{key}");
    }
}

#[tokio::test]
async fn decisions_fail_without_a_seed_and_the_error_changes_when_it_starts() {
    let cluster = Cluster::start();
    let mut standalone = Redis::start();
    standalone.stop();
    let urls = parsed([standalone.url()]);
    let options = RedisOptions { urls, timeout: Duration::from_millis(500), ..cluster_options(&cluster) };
    let store = store(&options);
    let (_, kernel) = kernels(1_000_000)[0];
    let result = decide_one(&store, kernel, "key", Cost::take(1)).await;
    assert!(matches!(result, Err(StoreError::Unreachable(_))), "{result:?}");

    // A server without cluster support is refused, although it answers.
    standalone.restart();
    let refused = wait::until_async(wait::PATIENCE, async || {
        match decide_one(&store, kernel, "key", Cost::take(1)).await {
            Err(StoreError::Refused(reason)) => Some(reason),
            _ => None,
        }
    });
    assert!(refused.await.expect("the reason").contains("cluster support disabled"));
}

/// Counts lost undos.
#[derive(Debug, Default)]
struct LostUndos(AtomicUsize);

impl Observer for LostUndos {
    fn lost_undo(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_hung_node_delays_only_its_own_callers_and_a_lost_undo_is_counted() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let mut cluster = Cluster::start();
    let [first, hung, healthy] = keys_on_each_primary(&cluster);
    let (_, kernel) = kernels(u64::from(u32::MAX))[0];
    let lost = Arc::new(LostUndos::default());
    let options = RedisOptions { timeout: TIMEOUT, ..cluster_options(&cluster) };
    let store = RedisStore::new(&options, Arc::clone(&lost) as Arc<dyn Observer>).expect("good options");
    for key in [&first, &hung, &healthy] {
        assert_eq!(remaining(&store, kernel, key).await, u64::from(u32::MAX));
    }
    cluster.hang(1);
    let mut both = Charges::default();
    add_charge(&mut both, kernel, &first, Cost::take(1));
    add_charge(&mut both, kernel, &hung, Cost::take(1));
    let (waiting, slowest, _) =
        tokio::join!(store.decide(&both), slowest_decision(&store, kernel, &healthy), async {
            let recorded = wait::until_async(TIMEOUT, async || {
                (run::<u64>(&cluster.nodes()[0], &["DBSIZE"]) == 1).then_some(())
            });
            recorded.await.expect("the part on the healthy node is recorded");
            cluster.stop(0);
        });
    assert!(waiting.is_err(), "{waiting:?}");
    drop(waiting); // without the word that the request is admitted
    assert!(slowest < TIMEOUT / 2, "{slowest:?}");
    let counted =
        wait::until_async(wait::PATIENCE, async || (lost.0.load(Ordering::Relaxed) == 1).then_some(()));
    assert!(counted.await.is_some(), "the undo is lost with its node");
}

/// The time of the slowest of 500 sequential decisions.
async fn slowest_decision(store: &RedisStore, kernel: Kernel, key: &str) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..500 {
        let start = monotonic();
        decide_one(store, kernel, key, Cost::take(1)).await.expect("this node is healthy");
        slowest = slowest.max(start.elapsed());
    }
    slowest
}

/// A request over several slots whose caller gives up takes no units on the nodes that answer.
#[tokio::test]
async fn a_request_that_fails_in_one_slot_takes_nothing_in_other_slots() {
    let mut cluster = Cluster::start();
    let options = RedisOptions { timeout: Duration::from_secs(1), ..cluster_options(&cluster) };
    let store = store(&options);
    let [first, second, _] = keys_on_each_primary(&cluster);
    for (name, kernel) in kernels(10) {
        assert_eq!(remaining(&store, kernel, &format!("{first}{name}")).await, 10);
    }
    cluster.stop(1);
    for (name, kernel) in kernels(10) {
        let mut both = Charges::default();
        add_charge(&mut both, kernel, &format!("{first}{name}"), Cost::take(4));
        add_charge(&mut both, kernel, &format!("{second}{name}"), Cost::take(4));
        assert!(store.decide(&both).await.is_err(), "{name}");
        let returned = wait::until_async(wait::PATIENCE, async || {
            (remaining(&store, kernel, &format!("{first}{name}")).await == 10).then_some(())
        });
        assert!(returned.await.is_some(), "{name}");
    }
}
