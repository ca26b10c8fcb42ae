//! A primary dies under load and its replica takes over: what callers of each node see, and for how long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ratelimitd::clock::monotonic;
use ratelimitd::engine::{Cost, Store, Verdict};
use ratelimitd::store::redis::{RedisOptions, RedisStore};

use super::{apart, block_on, unhurried};
use crate::redis::{kernels, one, store};
use crate::support::redis::cluster::{Cluster, run};
use crate::support::wait;

/// After the promotion Redis decides again within.
pub(crate) const RECOVERY: Duration = Duration::from_secs(1);

/// What a busy test machine may take for a decision of a node that is well.
const UNDISTURBED: Duration = Duration::from_millis(500);

/// So many requests at a time.
pub(crate) const BURST: usize = 10;

const LIMIT: u64 = 100;

/// What one key's callers have seen.
#[derive(Default)]
pub(crate) struct Seen {
    admitted: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    /// The longest answer, in microseconds.
    slowest_us: AtomicUsize,
}

impl Seen {
    pub(crate) fn admitted(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }
}

/// Asks in bursts until told to end.
pub(crate) async fn load(store: &RedisStore, key: &str, limit: u64, seen: &Seen, end: &AtomicBool) {
    let charges = one(kernels(limit)[0].1, key, Cost::take(1));
    let ask = async || {
        let start = monotonic();
        let answer = store.decide(&charges).await;
        let took_us = usize::try_from(start.elapsed().as_micros()).unwrap_or(usize::MAX);
        seen.slowest_us.fetch_max(took_us, Ordering::Relaxed);
        match answer {
            Ok(outcomes) if outcomes.by_charge[0].expect("decided").verdict == Verdict::Fits => {
                seen.admitted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(_) => {
                seen.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let ended = wait::until_async(wait::PATIENCE, async || {
        join_all((0..BURST).map(|_| ask())).await;
        end.load(Ordering::Relaxed).then_some(())
    });
    assert!(ended.await.is_some(), "nobody ended the load on {key}");
}

/// What callers see of a failover that an operator asks for.
#[test]
fn a_planned_failover_is_not_noticed() {
    let cluster = Cluster::with_replicas();
    let (key, seen, end) = (&apart(&cluster)[1], Seen::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                load(&store(&unhurried(&cluster)), key, u64::from(u32::MAX), &seen, &end).await;
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
    assert!(scripts_run(&cluster, 4), "who was promoted decides");
}

fn scripts_run(cluster: &Cluster, node: usize) -> bool {
    let commands: String = run(&cluster.nodes()[node], &["INFO", "commandstats"]);
    commands.contains("cmdstat_eval")
}

#[test]
fn a_dead_primary_is_replaced_and_the_others_go_on() {
    let mut cluster = Cluster::with_replicas();
    let keys = apart(&cluster);
    let options = RedisOptions { timeout: Duration::from_secs(1), ..unhurried(&cluster) };
    // On the node that dies, on the other two, and a tight limit on the one that dies.
    let seen: [Seen; 4] = Default::default();
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
        assert!((3..6).all(|replica| !scripts_run(&cluster, replica)), "replicas are asked nothing");
        // Errors of the start are not what this is about.
        for seen in &seen {
            seen.failed.store(0, Ordering::Relaxed);
            seen.slowest_us.store(0, Ordering::Relaxed);
        }

        cluster.stop(0);
        let (died, before) = (monotonic(), seen[0].admitted());
        wait::expect("the replica's promotion", || cluster.is_primary(3));
        let promoted = monotonic();
        wait::expect("decisions on the dead node's keys", || seen[0].admitted() > before + BURST);
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
        assert_eq!(seen.failed.load(Ordering::Relaxed), 0, "{key} is disturbed");
        assert!(slowest < UNDISTURBED, "{key}: {slowest:?}");
    }
    let admitted = seen[3].admitted();
    println!("{admitted} admitted where the limit is {LIMIT}");
    assert!(admitted <= 2 * usize::try_from(LIMIT).expect("small"), "{admitted}");
    assert!(scripts_run(&cluster, 3), "who was promoted decides");
    assert!(!scripts_run(&cluster, 4) && !scripts_run(&cluster, 5), "replicas are asked nothing");
}
