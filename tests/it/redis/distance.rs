//! Servers that are 150 ms away in each direction: connections are opened in time, with all round trips that they need,
//! if a decision may take a second.

use std::time::Duration;

use ::store::redis::{Credentials, Password, RedisOptions, SentinelOptions, Topology};
use ::tls::ClientTls;
use engine::Cost;

use super::security::tls_server;
use super::{decide_one, kernels, patient_options, store};
use crate::support::certificates::Authority;
use crate::support::grpc::{Code, Rls};
use crate::support::process::Plan;
use crate::support::redis::proxy::Proxy;
use crate::support::redis::sentinel::{MASTER, SENTINEL_PASSWORD, start_sentinel};
use crate::support::redis::{Redis, parsed};
use crate::support::{ports, wait};

const ONE_WAY: Duration = Duration::from_millis(150);
const TIMEOUT: Duration = Duration::from_secs(1);

const PASSWORD: &str = "hunter2";

fn proxy_before(redis: &Redis) -> Proxy {
    let proxy = Proxy::start(redis.address());
    proxy.delay(ONE_WAY, ONE_WAY);
    proxy
}

fn set_password(redis: &Redis) {
    redis.run::<()>(&["CONFIG", "SET", "requirepass", PASSWORD]).expect("CONFIG SET");
}

/// A store with these options decides.
async fn decides(options: RedisOptions) {
    let store = store(&RedisOptions { timeout: TIMEOUT, ..options });
    let mut last = Ok(());
    let decided = wait::until_async(wait::PATIENCE, async || {
        last = store.probe().await;
        last.is_ok().then_some(())
    });
    assert!(decided.await.is_some(), "{last:?}");
    for _ in 0..3 {
        decide_one(&store, kernels(1_000)[0].1, "far", Cost::take(1)).await.expect("a decision");
    }
}

#[tokio::test]
async fn a_service_far_from_its_server_is_ready_and_decides() {
    let redis = Redis::start();
    let proxy = proxy_before(&redis);
    let rules = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 5 } }]";
    let service = Plan::new(rules).redis(&format!("redis://{}/", proxy.address())).start();
    let (code, status) = Rls::connect(service.grpc_port()).await.send_one("d", &[("k", "x")]).await;
    assert_eq!((code, status.limit_remaining), (Code::Ok, 4));
    wait::expect("a description of the server", || service.log().contains("Redis server"));
    assert!(!service.log().contains("cannot read Redis INFO"), "{}", service.log());
}

#[tokio::test]
async fn a_far_server_with_tls_and_a_password_decides() {
    let authority = Authority::new();
    let (redis, port) = tls_server(&authority, &authority.certificate_for(&["127.0.0.1"]), "no");
    set_password(&redis);
    let proxy = Proxy::start(([127, 0, 0, 1], port).into());
    proxy.delay(ONE_WAY, ONE_WAY);
    let url = format!("rediss://:{PASSWORD}@127.0.0.1:{}", proxy.address().port());
    let tls = ClientTls { ca_file: Some(authority.file()), ..ClientTls::default() };
    decides(RedisOptions { tls, ..patient_options(&url) }).await;
}

#[tokio::test]
async fn a_far_server_behind_a_far_sentinel_decides() {
    let redis = Redis::start();
    let proxy = proxy_before(&redis);
    // The sentinel reports the proxy as the primary.
    let (port, _sentinel, _directory) = start_sentinel(proxy.address().port());
    let sentinel_proxy = Proxy::start(([127, 0, 0, 1], port).into());
    sentinel_proxy.delay(ONE_WAY, ONE_WAY);
    let sentinel = SentinelOptions {
        master: MASTER.to_owned(),
        credentials: Credentials { username: None, password: Password::Text(SENTINEL_PASSWORD.to_owned()) },
    };
    decides(RedisOptions {
        topology: Topology::Sentinel(sentinel),
        urls: parsed([format!("redis://{}", sentinel_proxy.address())]),
        ..patient_options("redis://unused")
    })
    .await;
}

#[tokio::test]
async fn a_far_cluster_node_decides() {
    let mut redis = Redis::start();
    let proxy = proxy_before(&redis);
    // The node reports the proxy as its own address.
    let (announced, bus) = (proxy.address().port().to_string(), ports::free().to_string());
    let settings = [
        ["--cluster-enabled", "yes"],
        ["--cluster-port", &bus],
        ["--cluster-announce-ip", "127.0.0.1"],
        ["--cluster-announce-port", &announced],
    ];
    redis.restart_with(&settings.concat());
    redis.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).expect("CLUSTER ADDSLOTSRANGE");
    wait::expect("a cluster that serves", || {
        redis.run::<String>(&["CLUSTER", "INFO"]).is_ok_and(|state| state.contains("cluster_state:ok"))
    });
    let url = format!("redis://{}", proxy.address());
    decides(RedisOptions { topology: Topology::Cluster, ..patient_options(&url) }).await;
}
