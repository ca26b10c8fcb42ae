//! A slot moves to another node under load: callers see nothing of it, and every limit holds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use ratelimitd::engine::{Charges, Cost, Store, Verdict};
use ratelimitd::store::redis::RedisStore;

use super::{apart, block_on, clustered};
use crate::redis::{add, kernels, remaining};
use crate::support::redis::cluster::{Cluster, run};
use crate::support::wait;

/// Each request is asked so often, and so often admitted.
const ASKED: usize = 20;
const LIMIT: usize = 7;
/// Of a limit that is wide enough for all.
const WIDE: u64 = 50;

/// Rounds the load has come to, and whether the move is over.
#[derive(Default)]
struct Progress {
    rounds: AtomicUsize,
    is_over: AtomicBool,
}

/// The requests that come up in the nth place: of one key, of two in the slot, and of two in two slots.
fn requests(n: usize, places: &[String; 3]) -> [Charges; 3] {
    let ([_, (_, narrow), ..], wide) = (kernels(LIMIT as u64), kernels(WIDE)[3].1);
    let [here, there, _] = places;
    let with = |name: &str, beside: Option<&String>| {
        let mut charges = Charges::default();
        add(&mut charges, narrow, &format!("{here}{name}{n}"), Cost::take(1));
        if let Some(beside) = beside {
            add(&mut charges, wide, &format!("{beside}{name}wide{n}"), Cost::take(1));
        }
        charges
    };
    [with("one", None), with("two", Some(here)), with("apart", Some(there))]
}

/// Asks until the move is over and a while longer; every round some keys come up that nobody has asked before. Returns
/// how often each request was admitted that has been asked often enough.
async fn load(store: &RedisStore, places: &[String; 3], progress: &Progress) -> Vec<[usize; 3]> {
    let mut admitted: Vec<[usize; 3]> = Vec::new();
    let mut last = usize::MAX;
    while admitted.len() < last {
        let round = admitted.len();
        admitted.push([0; 3]);
        let first = (round + 1).saturating_sub(ASKED);
        let asked = (first..=round).flat_map(|n| requests(n, places).map(|charges| (n, charges)));
        let answers = join_all(asked.enumerate().map(async |(at, (n, charges))| {
            let outcomes =
                store.decide(&charges).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
            (n, at % 3, outcomes.decided().all(|outcome| outcome.verdict == Verdict::Fits))
        }));
        for (n, kind, fits) in answers.await {
            admitted[n][kind] += usize::from(fits);
        }
        progress.rounds.store(round, Ordering::Relaxed);
        if last == usize::MAX && progress.is_over.load(Ordering::Relaxed) {
            last = round + 2 * ASKED;
        }
    }
    admitted.truncate(last - ASKED);
    admitted
}

fn slot(cluster: &Cluster, key: &str) -> String {
    run::<u16>(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", key]).to_string()
}

#[test]
fn a_slot_that_moves_under_load_is_not_noticed() {
    let (cluster, progress) = (Cluster::start(), Progress::default());
    let places = apart(&cluster);
    let admitted = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| block_on(async { load(&clustered(&cluster), &places, &progress).await }));
        let more_rounds = || {
            let before = progress.rounds.load(Ordering::Relaxed);
            wait::expect("the load to go on", || {
                loaded.is_finished() || progress.rounds.load(Ordering::Relaxed) > before + 2
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
        loaded.join().expect("no caller sees an error")
    });
    assert!(admitted.len() > 3 * ASKED, "{} rounds", admitted.len());
    for (n, counts) in admitted.iter().enumerate() {
        assert_eq!(*counts, [LIMIT; 3], "place {n} of {}", admitted.len());
    }
    wide_limits_hold(&cluster, &places, admitted.len());
}

/// What was held back was given back.
fn wide_limits_hold(cluster: &Cluster, places: &[String; 3], count: usize) {
    let wide = kernels(WIDE)[3].1;
    block_on(async {
        let store = clustered(cluster);
        for n in 0..count {
            for key in [format!("{}twowide{n}", places[0]), format!("{}apartwide{n}", places[1])] {
                assert_eq!(remaining(&store, wide, &key).await, WIDE - LIMIT as u64, "{key}");
            }
        }
    });
}
