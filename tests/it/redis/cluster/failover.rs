//! A primary dies under load and its replica is promoted: what callers of each node see, and for how long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::base::clock::monotonic;
use ::store::redis::{RedisOptions, RedisStore};
use engine::{Cost, Store, Verdict};
use futures_util::future::join_all;

use super::{block_on, cluster_options, keys_on_each_primary};
use crate::redis::{kernels, one_charge, store};
use crate::support::redis::cluster::{Cluster, run};
use crate::support::wait;

/// The longest time from the promotion to the first decision.
pub(crate) const RECOVERY: Duration = Duration::from_secs(1);

/// The longest decision of a healthy node on a busy test machine.
const UNDISTURBED: Duration = Duration::from_millis(500);

/// The number of concurrent requests.
pub(crate) const BURST: usize = 10;

const LIMIT: u64 = 100;

/// The results of the calls for one key.
#[derive(Default)]
pub(crate) struct CallResults {
    admitted: AtomicUsize,
    pub(crate) denied: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    /// The longest answer, in microseconds.
    slowest_us: AtomicUsize,
}

impl CallResults {
    pub(crate) fn admitted(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }
}

/// Sends bursts of requests until `end` is set.
pub(crate) async fn load(store: &RedisStore, key: &str, limit: u64, seen: &CallResults, end: &AtomicBool) {
    let charges = one_charge(kernels(limit)[0].1, key, Cost::take(1));
    let decide = async || {
        let start = monotonic();
        let answer = store.decide(&charges).await;
        let took_us = usize::try_from(start.elapsed().as_micros()).unwrap_or(usize::MAX);
        seen.slowest_us.fetch_max(took_us, Ordering::Relaxed);
        match answer {
            Ok(outcomes) if outcomes.by_charge[0].verdict == Verdict::Fits => {
                seen.admitted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => {
                seen.denied.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                seen.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let ended = wait::until_async(wait::PATIENCE, async || {
        join_all((0..BURST).map(|_| decide())).await;
        end.load(Ordering::Relaxed).then_some(())
    });
    assert!(ended.await.is_some(), "the load on {key} was not ended");
}

/// A failover that an operator starts.
#[test]
fn a_planned_failover_causes_no_error() {
    let cluster = Cluster::with_replicas();
    let (key, seen, end) =
        (&keys_on_each_primary(&cluster)[1], CallResults::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                load(&store(&cluster_options(&cluster)), key, u64::from(u32::MAX), &seen, &end).await;
            });
        });
        let more = || {
            let before = seen.admitted();
            wait::expect("decisions", || seen.admitted() > before + 5 * BURST);
        };
        more();
        run::<()>(&cluster.nodes()[4], &["CLUSTER", "FAILOVER"]);
        wait::expect("the replica's promotion", || cluster.is_primary(4) && !cluster.is_primary(1));
        more();
        end.store(true, Ordering::Relaxed);
    });
    assert_eq!(seen.failed.load(Ordering::Relaxed), 0);
    assert!(scripts_run(&cluster, 4), "the promoted node decides");
}

fn scripts_run(cluster: &Cluster, node: usize) -> bool {
    let commands: String = run(&cluster.nodes()[node], &["INFO", "commandstats"]);
    commands.contains("cmdstat_eval")
}

#[test]
fn a_dead_primary_is_replaced_and_the_other_nodes_still_decide() {
    let mut cluster = Cluster::with_replicas();
    let keys = keys_on_each_primary(&cluster);
    let options = RedisOptions { timeout: Duration::from_secs(1), ..cluster_options(&cluster) };
    // A key on each node, the first of which dies, and a tight limit on the node that dies.
    let seen: [CallResults; 4] = Default::default();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let store = store(&options);
                let tight = format!("{}tight", keys[0]);
                tokio::join!(
                    load(&store, &keys[0], u64::from(u32::MAX), &seen[0], &end),
                    load(&store, &keys[1], u64::from(u32::MAX), &seen[1], &end),
                    load(&store, &keys[2], u64::from(u32::MAX), &seen[2], &end),
                    load(&store, &tight, LIMIT, &seen[3], &end),
                );
            });
        });
        let more = |which: usize| {
            let before = seen[which].admitted();
            wait::expect("decisions", || seen[which].admitted() > before + 5 * BURST);
        };
        (0..3).for_each(more);
        assert!((3..6).all(|replica| !scripts_run(&cluster, replica)), "replicas run no script");
        // Errors before the fault do not count here.
        for seen in &seen {
            seen.failed.store(0, Ordering::Relaxed);
            seen.slowest_us.store(0, Ordering::Relaxed);
        }

        cluster.stop(0);
        let (died, before) = (monotonic(), seen[0].admitted());
        wait::expect("the replica's promotion", || cluster.is_primary(3));
        let promoted = monotonic();
        wait::expect("decisions on the keys of the dead node", || seen[0].admitted() > before + BURST);
        let recovery = promoted.elapsed();
        let outage = promoted - died;
        more(0);
        println!("promoted {outage:?} after the death, decisions {recovery:?} after the promotion");
        end.store(true, Ordering::Relaxed);
        assert!(recovery < RECOVERY, "{recovery:?}");
    });
    for (key, seen) in keys.iter().zip(&seen).skip(1) {
        let slowest = Duration::from_micros(seen.slowest_us.load(Ordering::Relaxed) as u64);
        println!("{key}: {} admitted, slowest {slowest:?}", seen.admitted());
        assert_eq!(seen.failed.load(Ordering::Relaxed), 0, "calls for {key} fail");
        assert!(slowest < UNDISTURBED, "{key}: {slowest:?}");
    }
    let admitted = seen[3].admitted();
    println!("{admitted} admitted where the limit is {LIMIT}");
    assert!(admitted <= 2 * usize::try_from(LIMIT).expect("small"), "{admitted}");
    assert!(scripts_run(&cluster, 3), "the promoted node decides");
    assert!(!scripts_run(&cluster, 4) && !scripts_run(&cluster, 5), "replicas run no script");
}
