//! A slot moves to another node under load: no call fails, and every limit is exact.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ::store::redis::RedisStore;
use engine::{Charges, Cost, Store, Verdict};
use futures_util::future::join_all;

use super::{block_on, cluster_store, keys_on_each_primary};
use crate::redis::{add_charge, kernels, remaining};
use crate::support::redis::cluster::{Cluster, run};
use crate::support::wait;

/// How often each request is sent, and how often it is admitted.
const REPEATS: usize = 20;
const LIMIT: usize = 7;
/// A limit that admits all requests.
const WIDE: u64 = 50;

/// The current round of the load, and whether the move is over.
#[derive(Default)]
struct Progress {
    rounds: AtomicUsize,
    is_over: AtomicBool,
}

/// The requests number `n`: with one key, with two keys in one slot, and with two keys in two slots.
fn requests(n: usize, places: &[String; 3]) -> [Charges; 3] {
    let ([_, (_, narrow), ..], wide) = (kernels(LIMIT as u64), kernels(WIDE)[3].1);
    let [moved, other, _] = places;
    let with = |name: &str, second: Option<&String>| {
        let mut charges = Charges::default();
        add_charge(&mut charges, narrow, &format!("{moved}{name}{n}"), Cost::take(1));
        if let Some(second) = second {
            add_charge(&mut charges, wide, &format!("{second}{name}wide{n}"), Cost::take(1));
        }
        charges
    };
    [with("one", None), with("two", Some(moved)), with("apart", Some(other))]
}

/// Sends requests until the move is over, and some rounds more. Each round adds requests with new keys. Returns how
/// often each request was admitted, for the requests that were sent [`REPEATS`] times.
async fn load(store: &RedisStore, places: &[String; 3], progress: &Progress) -> Vec<[usize; 3]> {
    let mut admitted: Vec<[usize; 3]> = Vec::new();
    let mut last = usize::MAX;
    while admitted.len() < last {
        let round = admitted.len();
        admitted.push([0; 3]);
        let first = (round + 1).saturating_sub(REPEATS);
        let requests = (first..=round).flat_map(|n| requests(n, places).map(|charges| (n, charges)));
        let answers = join_all(requests.enumerate().map(async |(at, (n, charges))| {
            let outcomes =
                store.decide(&charges).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
            (n, at % 3, outcomes.by_charge.iter().all(|outcome| outcome.verdict == Verdict::Fits))
        }));
        for (n, kind, fits) in answers.await {
            admitted[n][kind] += usize::from(fits);
        }
        progress.rounds.store(round, Ordering::Relaxed);
        if last == usize::MAX && progress.is_over.load(Ordering::Relaxed) {
            last = round + 2 * REPEATS;
        }
    }
    admitted.truncate(last - REPEATS);
    admitted
}

fn slot(cluster: &Cluster, key: &str) -> String {
    run::<u16>(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", key]).to_string()
}

#[test]
fn a_slot_that_moves_under_load_causes_no_error() {
    let (cluster, progress) = (Cluster::start(), Progress::default());
    let places = keys_on_each_primary(&cluster);
    let admitted = std::thread::scope(|scope| {
        let load_thread =
            scope.spawn(|| block_on(async { load(&cluster_store(&cluster), &places, &progress).await }));
        let more_rounds = || {
            let before = progress.rounds.load(Ordering::Relaxed);
            wait::expect("the next rounds of the load", || {
                load_thread.is_finished() || progress.rounds.load(Ordering::Relaxed) > before + 2
            });
        };
        let slot = slot(&cluster, &places[0]);
        more_rounds();
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            cluster.begin_move(&slot, from, to);
            for _ in 0..20 {
                more_rounds();
                cluster.move_some(&slot, from, to);
            }
            while cluster.move_some(&slot, from, to) {}
            cluster.end_move(&slot, from, to);
            more_rounds();
        }
        progress.is_over.store(true, Ordering::Relaxed);
        load_thread.join().expect("no caller sees an error")
    });
    assert!(admitted.len() > 3 * REPEATS, "{} rounds", admitted.len());
    for (n, counts) in admitted.iter().enumerate() {
        assert_eq!(*counts, [LIMIT; 3], "request {n} of {}", admitted.len());
    }
    wide_limits_hold(&cluster, &places, admitted.len());
}

/// The units of denied requests were returned.
fn wide_limits_hold(cluster: &Cluster, places: &[String; 3], count: usize) {
    let wide = kernels(WIDE)[3].1;
    block_on(async {
        let store = cluster_store(cluster);
        for n in 0..count {
            for key in [format!("{}twowide{n}", places[0]), format!("{}apartwide{n}", places[1])] {
                assert_eq!(remaining(&store, wide, &key).await, WIDE - LIMIT as u64, "{key}");
            }
        }
    });
}
