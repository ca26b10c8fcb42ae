//! Settles by a real Envoy, on the memory store: what is booked at the end of each kind of stream.

use crate::support::envoy::settling::{ESTIMATE, SettlingEnvoy, expect_remaining, remaining, settles};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

pub(crate) const RULES: &str = "
domain: envoy
descriptors:
  - key: tenant
    rate_limit:
      { unit: year, requests_per_unit: 1000, algorithm: fixed_window, settle: true, on_store_failure: allow }
";

fn start() -> (Ratelimitd, SettlingEnvoy) {
    let service = Ratelimitd::start(RULES);
    let envoy = SettlingEnvoy::start(&service);
    (service, envoy)
}

#[test]
fn the_difference_to_the_real_cost_is_booked_when_the_stream_ends() {
    let (service, envoy) = start();
    let table = [
        ("/tokens/150", 850), // below the estimate
        ("/tokens/400", 450), // equal
        ("/tokens/0", 450),
        ("/all/tokens/50", 400), // the item that returns everything does not count beside reported tokens
        ("/tokens/900", 0),      // above the estimate, and above what is left
    ];
    for (path, left) in table {
        assert_eq!(envoy.get(path).status, 200, "{path}");
        expect_remaining(&service, left);
    }
    assert_eq!(envoy.get("/tokens/1").status, 429);
    let counted =
        ["charged", "returned", "kept", "unreadable", "lost"].map(|result| settles(&service, result));
    assert_eq!(counted, [2, 3, 0, 0, 0]);
}

#[test]
fn a_denied_request_settles_nothing() {
    let (service, envoy) = start();
    for _ in 0..2 {
        assert_eq!(envoy.get("/silent").status, 200);
    }
    let calls = envoy.calls();
    for path in ["/tokens/1", "/all/tokens/1", "/all/silent"] {
        assert_eq!(envoy.get(path).status, 429, "{path}");
    }
    assert_eq!(remaining(&service), 1_000 - 2 * ESTIMATE);
    // The calls of Envoy are made in order: a settle of a denied request would be counted by now.
    assert_eq!(envoy.calls(), calls + 3, "no call at the end of a denied stream");
}

#[test]
fn without_reported_tokens_the_estimate_stays_or_is_returned() {
    let (service, envoy) = start();
    assert_eq!(envoy.get("/silent").status, 200);
    assert_eq!(envoy.get("/all/silent").status, 200);
    expect_remaining(&service, 1_000 - ESTIMATE);
    assert_eq!(settles(&service, "returned"), 1);
}

#[test]
fn an_upstream_that_fails_and_a_stream_that_is_aborted_settle_too() {
    let (service, envoy) = start();
    assert_eq!(envoy.get("/all/error").status, 503);
    expect_remaining(&service, 1_000);
    let stream = envoy.start_endless("/all/endless");
    assert_eq!(remaining(&service), 1_000 - ESTIMATE);
    drop(stream);
    expect_remaining(&service, 1_000);
    // An aborted stream whose tokens are known settles by them.
    drop(envoy.start_endless("/endless/100"));
    expect_remaining(&service, 900);
    wait::expect("three settles", || settles(&service, "returned") == 3);
}

#[test]
fn the_receipt_is_sent_beside_all_other_metadata_too() {
    let service = Plan::new(RULES).set("response.dynamic_metadata", true).start();
    let envoy = SettlingEnvoy::start(&service);
    assert_eq!(envoy.get("/tokens/150").status, 200);
    expect_remaining(&service, 850);
}
