//! The Redis store on a real server: what it writes, how exact it is, and what it does with values that it did not
//! write.

use ::store::redis::{RedisOptions, ReplayClient, script_sha1};
use engine::algorithm::{Blocked, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow};
use engine::{Charges, Cost, Pacing, Store, StoreError, Verdict};

use super::{
    DAY_US, add_charge, count_admitted, decide_one, kernels, one_charge, patient_options, remaining, store,
};
use crate::support::daemon::Daemon;
use crate::support::redis::{Redis, program};
use crate::support::wait;

#[tokio::test]
async fn exactly_the_limit_of_two_thousand_concurrent_requests_is_admitted() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    for (name, kernel) in kernels(100) {
        let charges = one_charge(kernel, name, Cost::take(1));
        assert_eq!(count_admitted(&store, &charges, 2_000).await, 100, "{name}");
        assert_eq!(remaining(&store, kernel, name).await, 0, "{name}");
    }
}

#[test]
fn workers_with_separate_stores_admit_exactly_the_limit() {
    let redis = Redis::start();
    for (name, kernel) in kernels(100) {
        let charges = one_charge(kernel, name, Cost::take(1));
        let worker = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let store = store(&patient_options(&redis.url()));
                count_admitted(&store, &charges, 1_000).await
            })
        };
        let total: usize = std::thread::scope(|scope| {
            let workers = [scope.spawn(worker), scope.spawn(worker)];
            workers.map(|worker| worker.join().expect("a worker ends")).iter().sum()
        });
        assert_eq!(total, 100, "{name}");
    }
}

#[tokio::test]
async fn two_limits_are_charged_together_or_not_at_all() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let (wide, narrow) = (kernels(100)[0].1, kernels(60)[3].1);
    let mut both = Charges::default();
    add_charge(&mut both, wide, "wide", Cost::take(1));
    add_charge(&mut both, narrow, "narrow", Cost::take(1));
    assert_eq!(count_admitted(&store, &both, 2_000).await, 60);
    assert_eq!(remaining(&store, wide, "wide").await, 40);
    assert_eq!(remaining(&store, narrow, "narrow").await, 0);
}

#[tokio::test]
async fn denials_and_peeks_write_nothing() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    for (name, kernel) in kernels(3) {
        assert_eq!(remaining(&store, kernel, name).await, 3, "{name}");
        let too_much = decide_one(&store, kernel, name, Cost::take(4)).await;
        assert_eq!(too_much.expect("Redis answers").verdict, Verdict::Over, "{name}");
    }
    let blocked =
        decide_one(&store, Kernel::Blocked(Blocked::new(60_000_000)), "blocked", Cost::take(1)).await;
    assert_eq!(blocked.expect("Redis answers").verdict, Verdict::Over);
    assert_eq!(redis.run::<u64>(&["DBSIZE"]).expect("DBSIZE"), 0);

    for (name, kernel) in kernels(3) {
        decide_one(&store, kernel, name, Cost::take(2)).await.expect("Redis answers");
        let key = format!("it:{name}");
        let before: Vec<u8> = redis.run(&["DUMP", &key]).expect("DUMP");
        let over = decide_one(&store, kernel, name, Cost::take(2)).await;
        assert_eq!(over.expect("Redis answers").verdict, Verdict::Over, "{name}");
        assert_eq!(remaining(&store, kernel, name).await, 1, "{name}");
        assert_eq!(redis.run::<Vec<u8>>(&["DUMP", &key]).expect("DUMP"), before, "{name}");
    }
}

fn server_time_us(redis: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = redis.run(&["TIME"]).expect("TIME");
    seconds * 1_000_000 + micros
}

#[tokio::test]
async fn a_counter_expires_a_second_after_its_reset() {
    const SLACK_US: u64 = 1_000_000;
    const MS_US: u64 = 1_000;
    /// Counters expire at whole seconds, so that a further write often need not change the expiry.
    const STEP_US: u64 = 1_000_000;
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let costs =
        [Cost::take(1), Cost::take(1), Cost::refund(1), Cost::take(2), Cost::refund(9), Cost::take(1)];
    let rounds = kernels(3).into_iter().flat_map(|named| costs.map(|cost| (named, cost)));
    for ((name, kernel), cost) in rounds {
        let before_us = server_time_us(&redis);
        let outcome = decide_one(&store, kernel, name, cost).await.expect("Redis answers");
        let expires_ms: i64 = redis.run(&["PEXPIRETIME", &format!("it:{name}")]).expect("PEXPIRETIME");
        let after_us = server_time_us(&redis);
        let reset_after_us = outcome.report.reset_after_us;
        let Ok(expires_us) = u64::try_from(expires_ms).map(|ms| ms * MS_US) else {
            assert!(expires_ms == -2 && reset_after_us == 0, "{name} never expires, or expired too early");
            continue;
        };
        assert!(reset_after_us > 0, "{name} is kept although nothing is used");
        // The server rounds its time down to whole milliseconds.
        assert!(expires_us + MS_US >= before_us + reset_after_us + SLACK_US, "{name} expires too early");
        let latest_us = after_us + reset_after_us + SLACK_US + STEP_US + MS_US;
        assert!(expires_us <= latest_us, "{name} expires too late");
    }
}

#[tokio::test]
async fn refunds_leave_no_key_when_nothing_is_used() {
    const YEAR_US: u64 = 365 * 86_400 * 1_000_000;
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let yearly = [
        ("window", Kernel::FixedWindow(FixedWindow::new(5, YEAR_US))),
        ("sliding", Kernel::SlidingWindow(SlidingWindow::new(5, YEAR_US))),
        ("log", Kernel::SlidingLog(SlidingLog::new(5, YEAR_US))),
        ("gcra", Kernel::Gcra(Gcra::new(5, YEAR_US, 5, Pacing::Meter))),
        ("bucket", Kernel::IntervalBucket(IntervalBucket::new(5, 5, YEAR_US))),
    ];
    for (name, kernel) in yearly {
        for n in 0..100 {
            let key = format!("{name}{n}");
            let first = if n % 2 == 0 { Cost::refund(1) } else { Cost::take(2) };
            decide_one(&store, kernel, &key, first).await.expect("Redis answers");
            decide_one(&store, kernel, &key, Cost::refund(2)).await.expect("Redis answers");
            assert_eq!(remaining(&store, kernel, &key).await, 5, "{key}");
        }
        assert_eq!(redis.run::<u64>(&["DBSIZE"]).expect("DBSIZE"), 0, "{name}");
    }
}

#[tokio::test]
async fn a_foreign_value_counts_as_no_value() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let long = "9".repeat(40);
    let (one, two, three) = ("\x7f".repeat(8), "\x7f".repeat(16), "\x7f".repeat(24));
    let strings = [
        "",
        "x",
        "-1",
        "1:2",
        "0x",
        "nan",
        "inf",
        &long,
        "01234567",
        "9007199254740993", // digits, and text that resembles digits
        "0123456789abcdef",
        "0123456789abcdef01234567",
        &one,
        &two,
        &three, // the length of one, two and three doubles
    ];
    for (name, kernel) in kernels(3) {
        let key = format!("it:{name}");
        let text = strings.iter().map(|text| vec!["SET", &key, text]);
        let types = [
            vec!["HSET", &key, "field", "value"],
            vec!["RPUSH", &key, "1"],
            vec!["RPUSH", &key, "0", "0", "x", "y"],
            vec!["RPUSH", &key, "0", "0", "1", "-5"],
            vec!["RPUSH", &key, "0", "0", &long, &long],
            vec!["RPUSH", &key, &two, &two, &two],
            vec!["RPUSH", &key, "0123456789abcdef", "0123456789abcdef", &three],
            vec!["RPUSH", &key, "x", &two, "y", &two, "z", &two],
            vec!["RPUSH", &key, "a", "b", "c", "d", "e", "f"],
        ];
        for command in text.chain(types) {
            redis.run::<()>(&["DEL", &key]).expect("DEL");
            redis.run::<()>(&command).expect("the value is written");
            assert_eq!(remaining(&store, kernel, name).await, 3, "{name} after {command:?}");
            let taken = decide_one(&store, kernel, name, Cost::take(1)).await.expect("Redis answers");
            assert_eq!(taken.report.remaining, 2, "{name} after {command:?}");
            assert_eq!(remaining(&store, kernel, name).await, 2, "{name} after {command:?}");
            assert!(redis.run::<i64>(&["PTTL", &key]).expect("PTTL") > 0, "{name} after {command:?}");
        }
    }
}

#[tokio::test]
async fn a_flushed_script_causes_no_error() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let (_, kernel) = kernels(500)[3];
    for _ in 0..10 {
        redis.run::<()>(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
        let outcome = decide_one(&store, kernel, "flushed", Cost::take(1)).await;
        assert_eq!(outcome.expect("no error").verdict, Verdict::Fits);
    }
    // Under load, from another thread.
    let admitted_under_load = std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            for _ in 0..100 {
                redis.run::<()>(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
            }
        });
        let server = &redis;
        let load = scope.spawn(move || load_until(server, kernel, || flusher.is_finished()));
        load.join().expect("the load ends")
    });
    // Each request was decided once: the admitted units are exactly the remaining ones.
    assert_eq!(admitted_under_load, 490);
}

fn load_until(redis: &Redis, kernel: Kernel, is_over: impl Fn() -> bool) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = store(&patient_options(&redis.url()));
        let charges = one_charge(kernel, "flushed", Cost::take(1));
        let mut total = 0;
        while !is_over() {
            total += count_admitted(&store, &charges, 20).await;
        }
        total + count_admitted(&store, &charges, 500).await
    })
}

#[tokio::test]
async fn passwords_and_databases_are_used_and_never_shown() {
    let redis = Redis::start();
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).expect("CONFIG SET");
    let (_, kernel) = kernels(3)[0];
    let url = |password: &str| format!("redis://:{password}@{}/3", redis.address());

    let right = store(&patient_options(&url("hunter2")));
    decide_one(&right, kernel, "secret", Cost::take(1)).await.expect("the password is right");
    let client = redis::Client::open(url("hunter2")).expect("a good URL");
    let mut connection = client.get_connection().expect("the password is right");
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("KEYS");
    assert_eq!(keys, ["it:secret"]);

    let wrong = store(&patient_options(&url("hunter3")));
    let refused = decide_one(&wrong, kernel, "secret", Cost::take(1)).await;
    let Err(StoreError::Forbidden(reason)) = refused else {
        panic!("not refused with a wrong password: {refused:?}");
    };
    assert!(!reason.contains("hunter") && !format!("{wrong:?}").contains("hunter"), "{reason}");
}

#[tokio::test]
async fn a_log_that_cannot_be_read_is_a_failure_and_not_an_empty_log() {
    let redis = Redis::start();
    let user = ["ACL", "SETUSER", "limiter", "on", ">hunter2", "~it:*", "+@all", "-lrange"];
    redis.run::<()>(&user).expect("ACL SETUSER");
    let store = store(&patient_options(&format!("redis://limiter:hunter2@{}/", redis.address())));
    let log = Kernel::SlidingLog(SlidingLog::new(5, DAY_US));
    for _ in 0..3 {
        let answer = decide_one(&store, log, "log", Cost::take(1)).await;
        assert!(matches!(answer, Err(StoreError::Forbidden(_))), "{answer:?}");
    }
    assert_eq!(redis.run::<u64>(&["EXISTS", "it:log"]).expect("EXISTS"), 0);
}

#[tokio::test]
async fn a_unix_socket_can_be_used() {
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("redis.sock");
    let mut command = std::process::Command::new(program());
    command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
    let _redis = Daemon::spawn("redis-server", "make tools", &mut command);
    wait::expect("the socket of redis-server", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let store = store(&patient_options(&format!("unix://{}", socket.display())));
    assert_eq!(store.probe().await, Ok(()));
}

#[tokio::test]
async fn only_the_keys_of_a_prefix_are_removed() {
    let redis = Redis::start();
    let (_, kernel) = kernels(3)[0];
    let options =
        |prefix: &str| RedisOptions { key_prefix: prefix.to_owned(), ..patient_options(&redis.url()) };
    for prefix in ["a*:", "ab:"] {
        let store = store(&options(prefix));
        for key in 0..1_500 {
            decide_one(&store, kernel, &key.to_string(), Cost::take(1)).await.expect("Redis answers");
        }
    }
    let mut client = ReplayClient::connect(&options("a*:")).await.expect("Redis answers");
    assert_eq!(client.remove_all().await, Ok(1_500));
    assert_eq!(redis.run::<u64>(&["DBSIZE"]).expect("DBSIZE"), 1_500);
}

#[tokio::test]
async fn no_request_is_decided_after_the_shutdown() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let (_, kernel) = kernels(3)[0];
    let charges = one_charge(kernel, "last", Cost::take(1));
    let (last, ended) = tokio::join!(store.decide(&charges), store.shutdown());
    assert_eq!(last.expect("a waiting request is answered").by_charge[0].verdict, Verdict::Fits);
    ended.expect("no batcher died");
    assert!(matches!(store.decide(&charges).await, Err(StoreError::Unreachable(_))));
}

#[tokio::test]
async fn a_kernel_that_the_script_does_not_know_is_an_error() {
    let redis = Redis::start();
    store(&patient_options(&redis.url())).probe().await.expect("the script is loaded");
    let mut connection =
        redis::Client::open(redis.url()).expect("a URL").get_connection().expect("a connection");
    // A record of one request with one charge: lua/batch.lua has the layout. 7 is a limit of 0.
    let mut run = |kernel: u8| {
        let numbers = [1_000.0, 1_000.0].map(f64::to_le_bytes).concat();
        let call = [&numbers[..], &[0, 0], &[1, 0], &[kernel, 1]].concat();
        redis::cmd("EVALSHA").arg(script_sha1()).arg(0).arg(call).query::<Vec<i64>>(&mut connection)
    };
    assert_eq!(run(7), Ok(vec![1_000, -1]), "denied");
    let error = run(10).expect_err("there is no such kernel").to_string();
    assert!(error.contains("no kernel 10"), "{error}");
}
