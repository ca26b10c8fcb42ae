//! A primary that sentinels monitor fails under load: which server decides next, and how soon.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::base::clock::monotonic;
use ::store::redis::{Credentials, Password, RedisOptions, SentinelOptions, Topology};
use engine::{Cost, StoreError};

use crate::redis::cluster::block_on;
use crate::redis::cluster::failover::{BURST, CallResults, RECOVERY, load};
use crate::redis::{decide_one, kernels, patient_options, store};
use crate::support::grpc::{Code, Rls};
use crate::support::process::Plan;
use crate::support::redis::sentinel::{MASTER, Monitored, SENTINEL_PASSWORD, start_sentinel};
use crate::support::redis::{Redis, parsed};
use crate::support::wait;

const LIMIT: u64 = 100;

pub(super) fn options(monitored: &Monitored) -> RedisOptions {
    let sentinel = SentinelOptions {
        master: MASTER.to_owned(),
        credentials: Credentials { username: None, password: Password::Text(SENTINEL_PASSWORD.to_owned()) },
    };
    RedisOptions {
        topology: Topology::Sentinel(sentinel),
        urls: parsed(monitored.urls()),
        ..patient_options("redis://unused")
    }
}

fn is_primary(redis: &Redis) -> bool {
    redis.run::<String>(&["INFO", "replication"]).is_ok_and(|text| text.contains("role:master"))
}

/// Calls `replace` under load. The new primary must decide within [`RECOVERY`] after all sentinels report it.
fn check_failover(monitored: &mut Monitored, replace: impl FnOnce(&mut Monitored)) {
    let options = RedisOptions { timeout: Duration::from_millis(100), ..options(monitored) };
    let (seen, tight, end) = (CallResults::default(), CallResults::default(), AtomicBool::new(false));
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
        wait::expect("the tight limit to be used up", || tight.denied.load(Ordering::Relaxed) > 0);
        replace(monitored);
        let begun = monotonic();
        wait::expect("the replica's promotion", || is_primary(&monitored.replica));
        let promoted = begun.elapsed();
        // The failover is over when the sentinels report the new primary.
        wait::expect("the sentinels to report it", || monitored.is_reported_primary(&monitored.replica));
        let reported = monotonic();
        wait::expect("decisions by the new primary", || decisions(&monitored.replica) > 0);
        let before = seen.admitted();
        wait::expect("admissions by the new primary", || seen.admitted() > before + BURST);
        let recovery = reported.elapsed();
        println!(
            "the replica was promoted after {promoted:?}, reported by the sentinels after {:?}, and decided {recovery:?} \
             after that",
            reported - begun
        );
        assert!(recovery < RECOVERY, "{recovery:?}");
        end.store(true, Ordering::Relaxed);
    });
    // The replica may not have the last grants of the primary: it admits at most the limit once more.
    // A call that got no answer in time may have been charged.
    let (admitted, failed) = (tight.admitted(), tight.failed.load(Ordering::Relaxed));
    assert!(admitted <= 200 && admitted + failed >= 100, "{admitted} admitted of 100, {failed} failed");
}

/// The number of script calls of a server.
fn decisions(redis: &Redis) -> u64 {
    let commands: String = redis.run(&["INFO", "commandstats"]).expect("INFO");
    let calls = commands.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| calls.split(',').next().and_then(|n| n.parse().ok()).expect("a number"))
}

#[test]
fn a_dead_primary_is_replaced() {
    let mut monitored = Monitored::start();
    check_failover(&mut monitored, |monitored| {
        // The store skips a sentinel that does not answer.
        monitored.stop_sentinel(0);
        monitored.primary.stop();
    });
}

#[test]
fn a_hung_primary_is_replaced() {
    check_failover(&mut Monitored::start(), |monitored| monitored.primary.signal("STOP"));
}

#[test]
fn a_demoted_primary_that_still_answers_is_left() {
    let mut monitored = Monitored::start();
    check_failover(&mut monitored, Monitored::fail_over);
    // It becomes a replica some seconds later. Until then it still decides.
    let (before, on_replica) = (decisions(&monitored.primary), decisions(&monitored.replica));
    block_on(async {
        let store = store(&options(&monitored));
        for _ in 0..10 {
            decide_one(&store, kernels(1)[0].1, "later", Cost::take(1)).await.expect("a decision");
        }
    });
    assert_eq!(decisions(&monitored.primary), before);
    assert!(decisions(&monitored.replica) >= on_replica + 10);
}

#[test]
fn a_sentinel_that_reports_a_hung_server_is_skipped() {
    let monitored = Monitored::start();
    let hung = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let outdated = start_sentinel(hung.local_addr().expect("an address").port());
    let mut urls = vec![format!("redis://127.0.0.1:{}", outdated.0)];
    urls.extend(monitored.urls());
    let options = RedisOptions { urls: parsed(urls), ..options(&monitored) };
    block_on(async {
        let store = store(&options);
        let decided = wait::until_async(wait::PATIENCE, async || {
            decide_one(&store, kernels(1)[0].1, "key", Cost::take(1)).await.ok()
        });
        assert!(decided.await.is_some(), "the other sentinels report the primary");
    });
}

#[test]
fn errors_of_sentinels_are_reported() {
    let monitored = Monitored::start();
    let mut unknown = options(&monitored);
    let mut without_password = unknown.clone();
    if let (Topology::Sentinel(unknown), Topology::Sentinel(without_password)) =
        (&mut unknown.topology, &mut without_password.topology)
    {
        unknown.master = "another master".to_owned();
        without_password.credentials = Credentials::default();
    }
    let failure = |options: &RedisOptions| -> StoreError {
        block_on(async { decide_one(&store(options), kernels(1)[0].1, "key", Cost::take(1)).await })
            .expect_err("no sentinel reports a primary")
    };
    let error = failure(&unknown).to_string();
    assert!(error.contains("does not know the master \"another master\""), "{error}");
    let error = failure(&without_password).to_string();
    assert!(error.contains("NOAUTH") || error.contains("Authentication"), "{error}");
}

#[test]
fn the_settings_configure_sentinels() {
    let monitored = Monitored::start();
    let rules = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 5 } }]";
    let service = Plan::new(rules)
        .redis(&monitored.urls().join(","))
        .set("store.redis.topology", "sentinel")
        .set("store.redis.sentinel.master", MASTER)
        .env("STORE__REDIS__SENTINEL__PASSWORD", SENTINEL_PASSWORD)
        .start();
    let (code, _) =
        block_on(async { Rls::connect(service.grpc_port()).await.send_one("d", &[("k", "x")]).await });
    assert_eq!(code, Code::Ok);
    let keys: Vec<String> = monitored.primary.run(&["KEYS", "ratelimitd:{d|*"]).expect("KEYS");
    assert_eq!(keys.len(), 1, "{keys:?}");
}
