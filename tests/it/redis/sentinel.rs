//! A primary under sentinels fails under load: which server decides next, and how soon.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratelimitd::clock::monotonic;
use ratelimitd::engine::{Cost, StoreError};
use ratelimitd::store::redis::{Credentials, Password, RedisOptions, SentinelOptions, Topology};

use crate::redis::cluster::block_on;
use crate::redis::cluster::failover::{BURST, RECOVERY, Seen, load};
use crate::redis::{ask, kernels, patient, store};
use crate::support::grpc::{Code, Rls};
use crate::support::process::Plan;
use crate::support::redis::sentinel::{MASTER, SENTINEL_PASSWORD, Watched, sentinel};
use crate::support::redis::{Redis, parsed};
use crate::support::wait;

const LIMIT: u64 = 100;

fn options(watched: &Watched) -> RedisOptions {
    let sentinel = SentinelOptions {
        master: MASTER.to_owned(),
        credentials: Credentials { username: None, password: Password::Text(SENTINEL_PASSWORD.to_owned()) },
    };
    RedisOptions {
        topology: Topology::Sentinel(sentinel),
        urls: parsed(watched.urls()),
        ..patient("redis://unused")
    }
}

fn is_primary(redis: &Redis) -> bool {
    redis.run::<String>(&["INFO", "replication"]).is_ok_and(|text| text.contains("role:master"))
}

/// Has the primary replaced under load, in some way: how soon the next one decides, once all sentinels name it.
fn replaced(watched: &mut Watched, replace: impl FnOnce(&mut Watched)) {
    let options = RedisOptions { timeout: Duration::from_millis(100), ..options(watched) };
    let (seen, tight, end) = (Seen::default(), Seen::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let store = store(&options);
                tokio::join!(
                    load(&store, "wide", u64::from(u32::MAX), &seen, &end),
                    load(&store, "tight", LIMIT, &tight, &end),
                );
            });
        });
        wait::expect("decisions", || seen.admitted() > 5 * BURST);
        wait::expect("the tight limit to be used up", || tight.admitted() >= 100);
        replace(watched);
        let gone = monotonic();
        wait::expect("the replica's promotion", || is_primary(&watched.replica));
        let promoted = gone.elapsed();
        // The failover is over when the sentinels say who it is.
        wait::expect("the sentinels to name it", || watched.is_named(&watched.replica));
        let named = monotonic();
        wait::expect("decisions by the new primary", || decisions(&watched.replica) > 0);
        let before = seen.admitted();
        wait::expect("admissions by the new primary", || seen.admitted() > before + BURST);
        let recovery = named.elapsed();
        println!(
            "a replica was promoted after {promoted:?}, the sentinels named it after {:?}, and it decided {recovery:?} \
             after that",
            named - gone
        );
        assert!(recovery < RECOVERY, "{recovery:?}");
        end.store(true, Ordering::Relaxed);
    });
    // What the primary granted in its last moment the replica may not know: one further limit at most.
    assert!((100..=200).contains(&tight.admitted()), "{} admitted of 100", tight.admitted());
}

/// How many script calls a server has had.
fn decisions(redis: &Redis) -> u64 {
    let commands: String = redis.run(&["INFO", "commandstats"]).expect("INFO");
    let calls = commands.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| calls.split(',').next().and_then(|n| n.parse().ok()).expect("a number"))
}

#[test]
fn a_primary_that_dies_is_followed_by_another() {
    let mut watched = Watched::start();
    replaced(&mut watched, |watched| {
        // A sentinel that is gone is passed over.
        watched.stop_sentinel(0);
        watched.primary.stop();
    });
}

#[test]
fn a_primary_that_hangs_is_followed_by_another() {
    replaced(&mut Watched::start(), |watched| watched.primary.signal("STOP"));
}

#[test]
fn a_primary_that_was_moved_away_from_is_left_although_it_still_answers() {
    let mut watched = Watched::start();
    replaced(&mut watched, Watched::fail_over);
    // It is made a replica some seconds later; until then it would decide for whoever asks.
    let (before, on_the_other) = (decisions(&watched.primary), decisions(&watched.replica));
    block_on(async {
        let store = store(&options(&watched));
        for _ in 0..10 {
            ask(&store, kernels(1)[0].1, "another", Cost::take(1)).await.expect("a decision");
        }
    });
    assert_eq!(decisions(&watched.primary), before);
    assert!(decisions(&watched.replica) >= on_the_other + 10);
}

#[test]
fn a_sentinel_that_names_a_server_that_hangs_is_passed_over() {
    let watched = Watched::start();
    let hung = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let behind = sentinel(hung.local_addr().expect("an address").port());
    let mut urls = vec![format!("redis://127.0.0.1:{}", behind.0)];
    urls.extend(watched.urls());
    let options = RedisOptions { urls: parsed(urls), ..options(&watched) };
    block_on(async {
        let store = store(&options);
        let decided = wait::until_async(wait::PATIENCE, async || {
            ask(&store, kernels(1)[0].1, "key", Cost::take(1)).await.ok()
        });
        assert!(decided.await.is_some(), "the others name the primary");
    });
}

#[test]
fn what_the_sentinels_do_not_know_is_said() {
    let watched = Watched::start();
    let mut unknown = options(&watched);
    let mut stranger = unknown.clone();
    if let (Topology::Sentinel(unknown), Topology::Sentinel(stranger)) =
        (&mut unknown.topology, &mut stranger.topology)
    {
        unknown.master = "somebody else".to_owned();
        stranger.credentials = Credentials::default();
    }
    let failure = |options: &RedisOptions| -> StoreError {
        block_on(async { ask(&store(options), kernels(1)[0].1, "key", Cost::take(1)).await })
            .expect_err("nobody to ask")
    };
    let told = failure(&unknown).to_string();
    assert!(told.contains("knows no master \"somebody else\""), "{told}");
    let told = failure(&stranger).to_string();
    assert!(told.contains("NOAUTH") || told.contains("Authentication"), "{told}");
}

#[test]
fn the_settings_lead_to_the_primary() {
    let watched = Watched::start();
    let rules = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 5 } }]";
    let service = Plan::new(rules)
        .redis(&watched.urls().join(","))
        .set("store.redis.topology", "sentinel")
        .set("store.redis.sentinel.master", MASTER)
        .env("STORE__REDIS__SENTINEL__PASSWORD", SENTINEL_PASSWORD)
        .start();
    let (code, _) = block_on(async { Rls::connect(service.grpc_port()).await.ask("d", &[("k", "x")]).await });
    assert_eq!(code, Code::Ok);
    let keys: Vec<String> = watched.primary.run(&["KEYS", "ratelimitd:*"]).expect("KEYS");
    assert_eq!(keys.len(), 1, "{keys:?}");
}
