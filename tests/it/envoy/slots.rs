//! Slots by a real Envoy: each kind of stream returns its slot, and takes that Envoy gave up leave none open.

use std::time::Duration;

use fastrand::Rng;

use crate::support::envoy::settling::{SettlingEnvoy, expect_remaining, remaining};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::proxy::Proxy;
use crate::support::wait;

fn rules(limit: u64) -> String {
    format!(
        "
domain: envoy
descriptors:
  - key: tenant
    rate_limit:
      {{ unit: hour, requests_per_unit: {limit}, algorithm: concurrency, on_store_failure: allow }}
"
    )
}

#[test]
fn every_kind_of_stream_returns_its_slot() {
    let service = Ratelimitd::start(&rules(2));
    let envoy = SettlingEnvoy::start(&service);
    for (path, status) in [("/all/tokens/150", 200), ("/all/silent", 200), ("/all/error", 503)] {
        assert_eq!(envoy.get(path).status, status, "{path}");
        expect_remaining(&service, 2);
    }
    let streams = [(); 2].map(|()| envoy.start_endless("/all/endless"));
    assert_eq!(remaining(&service), 0);
    let calls = envoy.calls();
    assert_eq!(envoy.get("/all/silent").status, 429);
    assert_eq!(envoy.calls(), calls + 1, "a denied request returns nothing");
    let [first, second] = streams;
    drop(first);
    expect_remaining(&service, 1);
    drop(second);
    expect_remaining(&service, 2);
}

#[test]
fn no_slot_is_open_after_streams_that_fail_in_any_way() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let url = format!("redis://{}/", proxy.address());
    let service = Plan::new(&rules(200)).redis(&url).set("store.redis.timeout", "500ms").start();
    let patient = SettlingEnvoy::start(&service);
    let impatient = SettlingEnvoy::start_with(&service, |bootstrap| bootstrap.decided_within("0.005s"));
    for batch in 0..12_u64 {
        // After 10 ms the impatient Envoy resets the call before its answer; after less, often while it is on its way.
        let delay_ms = [0, 10, 3, 0, 4, 5][usize::try_from(batch % 6).expect("small")];
        let envoy = if delay_ms > 0 { &impatient } else { &patient };
        proxy.delay(Duration::from_millis(delay_ms), Duration::ZERO);
        std::thread::scope(|scope| {
            for stream in 0..25 {
                scope.spawn(move || {
                    let mut random = Rng::with_seed(batch * 100 + stream);
                    match random.u8(..4) {
                        0 => drop(envoy.get("/all/tokens/150")),
                        1 => drop(envoy.get("/all/silent")),
                        2 => drop(envoy.get("/all/error")),
                        _ if delay_ms > 0 => {
                            envoy.abort("/all/endless", Duration::from_millis(random.u64(..10)))
                        }
                        _ => drop(envoy.start_endless("/all/endless")),
                    }
                });
            }
        });
    }
    proxy.delay(Duration::ZERO, Duration::ZERO);
    expect_remaining(&service, 200);
    let metrics = || http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    wait::expect("no slot waits", || metrics().contains("ratelimitd_slots_to_release 0\n"));
    let metrics = metrics();
    let unanswered = "ratelimitd_decisions_total{domain=\"envoy\",outcome=\"error\",rule=\"envoy.tenant\"}";
    assert!(!metrics.contains(&format!("{unanswered} 0\n")), "no call was given up: {metrics}");
}
