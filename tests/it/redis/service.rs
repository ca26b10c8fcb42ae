//! The served process on Redis: settings, admin pages, counters, shutdown and deny cache.

use serde_json::{Value, json};

use crate::cli::counters::{self, check_show_and_reset, counters};
use crate::service::store_page::{SECRET, page};
use crate::service::{changed_limits, connections, drain, store_page};
use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::{http, wait};

const ONE_LIMIT: &str = "
domain: support
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2, algorithm: fixed_window } }]
";

#[tokio::test]
async fn settings_reach_the_process_from_the_file_and_from_the_environment() {
    let redis = Redis::start();
    let plan = Plan::new(ONE_LIMIT).redis(&redis.url()).set("server.drain", "0s");
    let service = plan.env("STORE__REDIS__KEY_PREFIX", "mine:").start();

    let mut rls = Rls::connect(service.grpc_port()).await;
    let (code, status) = rls.send_one("support", &[("user", "a secret")]).await;
    assert_eq!((code, status.limit_remaining), (Code::Ok, 1));
    let keys: Vec<String> = redis.run(&["KEYS", "*"]).expect("KEYS");
    assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with("mine:")), "{keys:?}");

    for (port, path) in [(service.http_port(), "/healthcheck"), (service.admin_port(), "/rlconfig")] {
        assert_eq!(http::get(port, path, &[]).expect("an answer").status, 200, "{path}");
    }
    assert!(!service.log().contains("a secret"), "values of descriptors are never logged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_are_finished() {
    let redis = Redis::start();
    let plan = Plan::new(drain::RULES)
        .redis(&redis.url())
        .set("store.redis.timeout", "8s")
        .set("server.drain", "0s");
    let mut service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("drain", &[("user", "u")]).await.0, Code::Ok);

    let calls_to_redis = || {
        let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
        let count = metrics.lines().find_map(|line| line.strip_prefix("ratelimitd_redis_batch_size_count "));
        count.and_then(|count| count.parse::<u64>().ok()).expect("a count of script calls")
    };
    let before = calls_to_redis();
    redis.run::<()>(&["CLIENT", "PAUSE", "1500", "ALL"]).expect("CLIENT PAUSE");
    #[expect(clippy::disallowed_methods, reason = "the call must be in flight while the process stops")]
    let call = tokio::spawn(async move { rls.send_one("drain", &[("user", "u")]).await.0 });
    wait::expect("the call to Redis", || calls_to_redis() > before);
    service.terminate();
    assert_eq!(call.await.expect("no panic"), Code::Ok, "answered after SIGTERM");
    let status = service.wait_exit();
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_page_shows_redis_up_and_down() {
    let mut redis = Redis::start();
    redis.run::<()>(&["ACL", "SETUSER", "limiter", "on", &format!(">{SECRET}"), "~*", "+@all"]).expect("ACL");
    let url = format!("redis://limiter:{SECRET}@127.0.0.1:{}", redis.port());
    let service = Plan::new(store_page::RULES).redis(&url).set("server.workers", 2).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    // One is admitted, one is denied by Redis, one is denied by the deny cache.
    for _ in 0..3 {
        rls.send_one("d", &[("k", "x")]).await;
    }
    wait::expect("the version of the server", || page(&service)["redis"]["servers"][0].is_object());
    let up = page(&service)["redis"].clone();
    assert_eq!(up["topology"], "standalone");
    assert_eq!(up["addresses"], json!([format!("redis://127.0.0.1:{}", redis.port())]));
    assert_eq!(up["servers"][0]["server"], redis.version());
    // One breaker for each of two workers, and one for the admin pages.
    assert_eq!(up["nodes"], json!({"server": {"closed": 3}}));
    assert_eq!((&up["answers"], &up["last_outage"]), (&json!(true), &Value::Null));
    assert_eq!(up["deny_cache"], json!({"keys": 1, "hits": 1}));
    let script = up["script"].as_str().expect("a name");
    assert_eq!(redis.run::<Vec<u8>>(&["SCRIPT", "EXISTS", script]).expect("SCRIPT EXISTS"), [1]);

    redis.stop();
    let opened = wait::until_async(wait::PATIENCE, async || {
        rls.send_one("d", &[("k", "y")]).await;
        (page(&service)["redis"]["nodes"]["server"]["open"].as_u64() > Some(0)).then_some(())
    });
    opened.await.expect("an open breaker");
    let down = page(&service)["redis"].clone();
    assert_eq!(down["answers"], false);
    assert!(
        down["last_outage"]["error"].as_str().is_some_and(|error| error.contains("cannot reach the store")),
        "{down}"
    );
    assert!(down["last_outage"]["at"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_in_redis_are_shown_and_reset() {
    let mut redis = Redis::start();
    let service = Plan::new(counters::RULES).redis(&redis.url()).set("store.redis.timeout", "5s").start();
    check_show_and_reset(&service, "ratelimitd:{shop|user=ann}#").await;
    redis.stop();
    let (code, _, error) = counters(&service, &["show", "user=ann"]);
    assert_eq!(code, Some(2), "unknown counters are an error: {error}");
}

#[tokio::test]
async fn ten_thousand_blocked_values_never_reach_redis() {
    const RULES: &str = "
domain: blocked
descriptors:
  - { key: path, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: user, rate_limit: { unit: day, requests_per_unit: 0, algorithm: gcra } }
";
    let redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for first in (0..10_000).step_by(50) {
        let values: Vec<_> = (first..first + 50).map(|n| format!("/{n}")).collect();
        let keys = ["path", "user"].into_iter().cycle();
        let descriptors = values.iter().zip(keys).map(|(value, key)| descriptor(&[(key, value)])).collect();
        let answer = rls.send(request("blocked", descriptors)).await.expect("an answer");
        assert!(answer.statuses.iter().all(|status| status.code() == Code::OverLimit));
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    let decided_by_redis =
        metrics.lines().find(|line| line.starts_with("ratelimitd_store_duration_seconds_count"));
    assert_eq!(decided_by_redis, Some("ratelimitd_store_duration_seconds_count{store=\"redis\"} 0"));
    let keys: Vec<String> = redis.run(&["KEYS", "*{blocked|*"]).expect("KEYS");
    assert_eq!(keys, [""; 0]);
}

#[tokio::test]
async fn a_port_full_of_connections_leaves_open_files_for_redis() {
    let redis = Redis::start();
    let plan = Plan::new(connections::RULES).redis(&redis.url()).open_files(256, 256);
    let service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let open = connections::fill_grpc_port(&service).await;
    redis.run::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("CLIENT KILL");
    let decided = wait::until_async(wait::PATIENCE, async || {
        let message = request("crowd", vec![descriptor(&[("user", "u")])]);
        rls.send(message).await.ok().map(|answer| answer.overall_code())
    });
    assert_eq!(decided.await, Some(Code::Ok), "new connections to Redis");
    drop(open);
}

#[test]
fn a_changed_limit_keeps_what_was_used_in_redis() {
    let redis = Redis::start();
    let plan = Plan::new(&changed_limits::rules(1_000)).redis(&redis.url());
    changed_limits::check_change(&plan.start());
}
