//! `/store` of the admin port: what it says of the store in good times and bad.

use serde_json::{Value, json};

use crate::support::grpc::Rls;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, wait};

const RULES: &str = "
domain: d
descriptors:
  - { key: k, rate_limit: { unit: year, requests_per_unit: 1, algorithm: gcra, on_store_failure: allow } }
";
const SECRET: &str = "hunter2";

fn page(service: &Ratelimitd) -> Value {
    let answer = http::get(service.admin_port(), "/store", &[]).expect("an answer");
    assert!(!answer.body.contains(SECRET), "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_tells_how_many_keys_it_has() {
    let service = Ratelimitd::start(RULES);
    Rls::connect(service.grpc_port()).await.ask("d", &[("k", "x")]).await;
    assert_eq!(page(&service), json!({"kind": "memory", "memory": {"keys": 1, "evictions": 0}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_shown_up_and_down() {
    let mut redis = Redis::start();
    redis.run::<()>(&["ACL", "SETUSER", "limiter", "on", &format!(">{SECRET}"), "~*", "+@all"]).expect("ACL");
    let url = format!("redis://limiter:{SECRET}@127.0.0.1:{}", redis.port());
    let service = Plan::new(RULES).redis(&url).set("server.workers", 2).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    // One to be admitted, one to be denied by Redis, one by what is remembered.
    for _ in 0..3 {
        rls.ask("d", &[("k", "x")]).await;
    }
    wait::expect("what the server says of itself", || page(&service)["redis"]["servers"][0].is_object());
    let up = page(&service)["redis"].clone();
    assert_eq!(up["topology"], "standalone");
    assert_eq!(up["addresses"], json!([format!("redis://127.0.0.1:{}", redis.port())]));
    assert_eq!(up["servers"][0]["server"], redis.version());
    // Two workers and the pages.
    assert_eq!(up["nodes"], json!({"server": {"closed": 3}}));
    assert_eq!((&up["answers"], &up["last_outage"]), (&json!(true), &Value::Null));
    assert_eq!(up["deny_cache"], json!({"keys": 1, "hits": 1}));
    let script = up["script"].as_str().expect("a name");
    assert_eq!(redis.run::<Vec<u8>>(&["SCRIPT", "EXISTS", script]).expect("SCRIPT EXISTS"), [1]);

    redis.stop();
    let asked = wait::until_async(wait::PATIENCE, async || {
        rls.ask("d", &[("k", "another")]).await;
        (page(&service)["redis"]["nodes"]["server"]["open"].as_u64() > Some(0)).then_some(())
    });
    asked.await.expect("an open breaker");
    let down = page(&service)["redis"].clone();
    assert_eq!(down["answers"], false);
    assert!(down["last_outage"]["error"].as_str().is_some_and(|error| error.contains("reached")), "{down}");
    assert!(down["last_outage"]["at"].is_string());
}
