//! Secret values on Redis: no key holds one, and instances with the same key of the hashes share their counters.

use crate::cli::counters::counters_of;
use crate::service::secrets::{KEY, RULES, TOKEN, check_log, check_that_nothing_is_shown, talkative};
use crate::support::grpc::{Code, Rls};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;

#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_redis_holds_a_secret_value() {
    let redis = Redis::start();
    let service = talkative(RULES).redis(&redis.url()).start();
    check_that_nothing_is_shown(&service).await;
    let keys: Vec<String> = redis.run(&["KEYS", "*"]).expect("KEYS");
    assert!(keys.iter().any(|key| key.contains("api_key=%k")), "{keys:?}");
    assert!(!keys.iter().any(|key| key.contains("4f8a0c1b")), "{keys:?}");
    check_log(service);
}

async fn send(service: &Ratelimitd) -> Code {
    Rls::connect(service.grpc_port()).await.send_one("api", &[("api_key", TOKEN)]).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_share_a_counter_if_they_have_the_same_key() {
    let redis = Redis::start();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), format!("{KEY}\n")).expect("room for a key");
    let plan = || Plan::new(RULES).redis(&redis.url());
    let first = plan().env("SECRETS__KEY", KEY).start();
    let second = plan().set("secrets.key_file", file.path().to_str()).start();
    let third = plan().env("SECRETS__KEY", &KEY.replace("c0ffee", "c0c0a0")).start();
    assert_eq!([send(&first).await, send(&second).await], [Code::Ok, Code::Ok]);
    assert_eq!([send(&first).await, send(&second).await], [Code::OverLimit, Code::OverLimit]);
    assert_eq!(send(&third).await, Code::Ok, "another key, another counter");

    // The operator gives the value, the service finds its counter.
    let (code, text, error) = counters_of(&second, "api", &["reset", &format!("api_key={TOKEN}")]);
    assert_eq!(code, Some(0), "{error}");
    assert!(text.contains("api_key=%k") && text.contains(": reset") && !text.contains(TOKEN), "{text}");
    assert_eq!(send(&second).await, Code::Ok);
}
