//! Connections that break, are silent or too slow, and a server that is down.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Fixture, Symptoms};
use crate::service::store_page;
use crate::support::grpc::{Code, descriptor, request};
use crate::support::redis::Redis;
use crate::support::redis::proxy::Proxy;
use crate::support::wait;

/// Above what a busy test machine takes, below what the proxy adds.
const IMPATIENT: &str = "1s";
const SLOWER: Duration = Duration::from_millis(1_500);

/// So that calls are on their way for a while.
const SLOW: Duration = Duration::from_millis(150);

fn url(proxy: &Proxy) -> String {
    format!("redis://{}/", proxy.address())
}

/// A fault of the connection to a server, and its end: which answers the callers get, and that no call is charged
/// twice.
async fn comes_and_goes(timeout: &str, symptoms: &Symptoms, fault: impl FnOnce(&Proxy)) {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let mut fixture = Fixture::start(&url(&proxy), timeout).await;
    fault(&proxy);
    fixture.first_failure().await;
    fixture.policies_are_in_force(symptoms).await;
    proxy.restore();
    fixture.service_recovers().await;
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed() {
    let mut redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), "1s").await;
    redis.stop();
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "unreachable", logged: "cannot reach the store" }).await;
    redis.restart();
    (fixture.admitted, fixture.unanswered) = (0, 0);
    fixture.service_recovers().await;
    // The counters are new, and what was asked of the dead one is gone with it.
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), IMPATIENT).await;
    redis.signal("STOP");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "timeout", logged: "in time" }).await;
    redis.signal("CONT");
    fixture.service_recovers().await;
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_accepts_and_never_answers() {
    let symptoms = Symptoms { kind: "timeout", logged: "in time" };
    comes_and_goes(IMPATIENT, &symptoms, Proxy::blackhole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_slower_than_the_deadline() {
    let symptoms = Symptoms { kind: "timeout", logged: "in time" };
    comes_and_goes(IMPATIENT, &symptoms, |proxy| proxy.delay(Duration::ZERO, SLOWER)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_connections() {
    let symptoms = Symptoms { kind: "unreachable", logged: "cannot reach the store" };
    let refuse = |proxy: &Proxy| {
        proxy.refuse();
        proxy.cut();
    };
    comes_and_goes("1s", &symptoms, refuse).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_outage_is_noticed_without_requests() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let mut fixture = Fixture::start(&url(&proxy), "1s").await;
    proxy.refuse();
    proxy.cut();
    fixture.first_failure().await;
    let answers = || store_page::page(&fixture.service)["redis"]["answers"].clone();
    wait::expect("the outage is shown", || answers() == false);
    proxy.restore();
    wait::expect("the store answers", || answers() == true);
    fixture.service.log_with("Redis is available again");
    assert_eq!(fixture.times_logged("Redis is available again"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_go_before_their_answer_are_counted() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), "10s").await;
    redis.signal("STOP");
    let gone = tokio::time::timeout(Duration::from_millis(50), fixture.ask()).await;
    assert!(gone.is_err(), "no answer is expected");
    let abandoned = "ratelimitd_store_errors_total{kind=\"abandoned\",store=\"redis\"}";
    let failed = "ratelimitd_decisions_total{domain=\"d\",outcome=\"error\",rule=\"d.error\"}";
    wait::expect("the one that went", || (fixture.metric(abandoned), fixture.metric(failed)) == (1, 1));
    redis.signal("CONT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_far_server_that_is_seldom_asked() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let mut fixture = Fixture::start(&url(&proxy), "1s").await;
    // Far enough that a new connection, with its script, would come too late.
    proxy.delay(Duration::ZERO, Duration::from_millis(200));
    let count = |name: &str| -> u64 {
        let stats: redis::InfoDict = redis.run(&["INFO", "all"]).expect("INFO");
        let line: String = stats.get(name).unwrap_or_default();
        let number = line.strip_prefix("calls=").unwrap_or(&line).split(',').next().unwrap_or_default();
        number.parse().unwrap_or_default()
    };
    for _ in 0..3 {
        let pings = count("cmdstat_ping");
        wait::expect("idle connections to be looked after", || count("cmdstat_ping") >= pings + 4);
        assert_eq!(fixture.ask().await, Ok(Code::Ok));
    }
    assert_eq!(fixture.times_logged("Redis is unavailable"), 0);
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "the calls must be in flight when the connection is cut")]
async fn a_connection_that_is_cut_with_calls_on_their_way() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let mut fixture = Fixture::start(&url(&proxy), "1s").await;
    proxy.delay(Duration::ZERO, SLOW);
    let asked = 50;
    let calls = (0..asked).map(|_| {
        let mut rls = fixture.rls.clone();
        tokio::spawn(async move {
            let asked = request("d", vec![descriptor(&[("error", "x")])]);
            rls.send(asked).await.is_ok()
        })
    });
    let calls: Vec<_> = calls.collect();
    // Decided, and the answers still on their way.
    wait::expect("Redis decides", || {
        redis.run::<String>(&["INFO", "commandstats"]).is_ok_and(|stats| stats.contains("cmdstat_evalsha"))
    });
    proxy.cut();
    proxy.delay(Duration::ZERO, Duration::ZERO);
    let answered = join_all(calls).await.into_iter().filter(|answer| matches!(answer, Ok(true))).count();
    let answered = u32::try_from(answered).expect("few");
    fixture.admitted += answered;
    fixture.unanswered += asked - answered;
    assert_eq!(fixture.ask().await, Ok(Code::Ok), "the next one has a new connection");
    assert_eq!(fixture.metric("ratelimitd_redis_breaker_transitions_total{state=\"open\"}"), 0);
    fixture.nothing_was_charged_twice().await;
}
