//! Many rules, and many changes under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::resource::resource;
use super::{limits, metric, one_rule, plan};
use crate::support::ads::AdsServer;
use crate::support::grpc::{Code, Rls};

/// How long the rules change under load. Longer by hand: `RATELIMITD_TEST_XDS_SECONDS=60`.
const SECONDS: u64 = 10;
const EVERY: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_rules_come_in_one_answer() {
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    let rules = |requests_per_unit: u32| {
        let path = |path: usize| {
            let limit = json!({"unit": "YEAR", "requests_per_unit": requests_per_unit});
            json!({"key": "path", "value": format!("/p{path}"), "rate_limit": limit})
        };
        let tenant = |tenant: usize| {
            let paths: Vec<Value> = (0..100).map(path).collect();
            json!({"key": "tenant", "value": format!("t{tenant}"), "descriptors": paths})
        };
        let tenants: Vec<Value> = (0..100).map(tenant).collect();
        resource(&json!({"name": "many", "domain": "many", "descriptors": tenants}))
    };
    server.set("1", vec![rules(10)]);
    server.expect_ack("1").await;
    assert_eq!(metric(&service, "ratelimitd_rules"), 10_000.0);
    let mut rls = Rls::connect(service.grpc_port()).await;
    let entries = [("tenant", "t7"), ("path", "/p3")];
    assert_eq!(rls.send_one("many", &entries).await.1.limit_remaining, 9);
    server.set("2", vec![rules(20)]);
    server.expect_ack("2").await;
    // The unit that was used stays used.
    assert_eq!(rls.send_one("many", &entries).await.1.limit_remaining, 18);
    assert_eq!(limits(&service).len(), 10_000);
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "calls go on for a time on the real clock, as in production")]
async fn no_call_fails_while_the_rules_change_under_load() {
    let seconds = std::env::var("RATELIMITD_TEST_XDS_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let server = AdsServer::start().await;
    let service = plan(&server).wait_for_livez().start();
    let version = |number: u32| vec![one_rule("a", 1_000_000_000 + number), one_rule("b", 1_000_000_000)];
    server.set("0", version(0));
    server.expect_ack("0").await;

    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let mut callers = Vec::new();
    for caller in 0..4 {
        let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
        let mut rls = Rls::connect(service.grpc_port()).await;
        callers.push(tokio::spawn(async move {
            let user = format!("u{caller}");
            while !stop.load(Ordering::Relaxed) {
                for domain in ["a", "b"] {
                    let (code, status) = rls.send_one(domain, &[("user", &user)]).await;
                    assert_eq!(code, Code::Ok);
                    assert!(status.current_limit.is_some(), "a limit applies at any moment");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    let start = Instant::now();
    let mut ticks = tokio::time::interval(EVERY);
    let mut number = 0;
    while start.elapsed() < length {
        ticks.tick().await;
        number += 1;
        server.set(&number.to_string(), version(number));
    }
    server.expect_ack(&number.to_string()).await;
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("every call has an answer");
    }
    let accepted = metric(&service, r#"ratelimitd_xds_answers_total{result="accepted"}"#);
    let calls = calls.load(Ordering::Relaxed);
    println!("{number} versions in {length:?}, {accepted} taken over, {calls} calls");
    // A slow machine takes over several versions at once.
    assert!(accepted > f64::from(number) / 4.0, "{accepted} of {number} versions");
    assert!(calls > 1_000, "{calls} calls");
    assert_eq!(metric(&service, r#"ratelimitd_rule_loads_total{result="failure"}"#), 0.0);
}
