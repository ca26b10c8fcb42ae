//! A client whose own limit is used up goes on asking, with a limit in the same request that other clients use too.
//! None of its requests is admitted, so the others lose nothing: on one server, and over several slots of a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::task::JoinSet;

use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::wait;

const RULES: &str = "
domain: d
descriptors:
  - { key: own, rate_limit: { unit: year, requests_per_unit: 1, algorithm: gcra } }
  - { key: window, rate_limit: { unit: year, requests_per_unit: 20, charging: prepaid } }
  - { key: bucket, rate_limit: { unit: year, requests_per_unit: 20, algorithm: gcra } }
  - { key: fast, rate_limit: { unit: second, requests_per_unit: 100, burst: 1000, algorithm: gcra } }
";

/// Calls of the denied client at one time: twice as many as a shared limit has units.
const IN_FLIGHT: usize = 40;

/// Requests of the other client. All of them fit, and this many are admitted at least.
const REQUESTS: usize = 320;
const ENOUGH: usize = REQUESTS - REQUESTS / 20;

/// Reports every limit (`retry_after`), so that a denial in the deny cache alone does not answer a request.
fn plan(urls: &str, topology: &str) -> Plan {
    let plan = Plan::new(RULES).redis(urls).set("store.redis.topology", topology).set("server.workers", 1);
    plan.set("store.redis.timeout", "5s").set("response.retry_after", true)
}

/// The client that is over its own limit.
struct DeniedClient {
    tasks: JoinSet<usize>,
    has_ended: Arc<AtomicBool>,
    /// Which of the shared counters its requests have.
    current: Arc<AtomicUsize>,
    /// Answers so far.
    answers: Arc<AtomicUsize>,
}

impl DeniedClient {
    async fn start(service: &Ratelimitd, shared: &'static str) -> Self {
        let mut rls = Rls::connect(service.grpc_port()).await;
        let mut client = Self {
            tasks: JoinSet::new(),
            has_ended: Arc::default(),
            current: Arc::default(),
            answers: Arc::default(),
        };
        assert_eq!(rls.send_one("d", &[("own", shared)]).await.0, Code::Ok);
        for _ in 0..IN_FLIGHT {
            let (mut rls, current) = (rls.clone(), Arc::clone(&client.current));
            let (has_ended, answers) = (Arc::clone(&client.has_ended), Arc::clone(&client.answers));
            client.tasks.spawn(async move {
                let mut admitted = 0;
                while !has_ended.load(Ordering::Relaxed) {
                    let counter = current.load(Ordering::Relaxed).to_string();
                    let both = vec![descriptor(&[("own", shared)]), descriptor(&[(shared, &counter)])];
                    let answer = rls.send(request("d", both)).await.expect("an answer");
                    admitted += usize::from(answer.overall_code() == Code::Ok);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                admitted
            });
        }
        client.wait_for_answers(20 * IN_FLIGHT).await;
        client
    }

    async fn wait_for_answers(&self, more: usize) {
        let enough = self.answers.load(Ordering::Relaxed) + more;
        let has_enough = async || (self.answers.load(Ordering::Relaxed) >= enough).then_some(());
        wait::until_async(wait::PATIENCE, has_enough).await.expect("answers to the denied client");
    }

    async fn end(self) {
        self.has_ended.store(true, Ordering::Relaxed);
        let admitted: usize = self.tasks.join_all().await.into_iter().sum();
        assert_eq!(admitted, 0, "the denied client is denied");
    }
}

/// How many of the other client's requests are admitted: 16 to each of 20 counters with a limit of 20.
async fn admitted_beside_a_denied_client(service: &Ratelimitd, shared: &'static str) -> usize {
    let client = DeniedClient::start(service, shared).await;
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut admitted = 0;
    for counter in 1..=20 {
        client.current.store(counter, Ordering::Relaxed);
        client.wait_for_answers(IN_FLIGHT).await;
        for _ in 0..REQUESTS / 20 {
            let (code, _) = rls.send_one("d", &[(shared, &counter.to_string())]).await;
            admitted += usize::from(code == Code::Ok);
        }
    }
    client.end().await;
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_requests_take_nothing_from_other_clients_on_one_server() {
    let redis = Redis::start();
    let service = plan(&redis.url(), "standalone").start();
    for shared in ["window", "bucket"] {
        assert_eq!(admitted_beside_a_denied_client(&service, shared).await, REQUESTS, "{shared}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_requests_take_nothing_from_other_clients_in_a_cluster() {
    let cluster = Cluster::start();
    let service = plan(&cluster.urls().join(","), "cluster").start();
    for shared in ["window", "bucket"] {
        let admitted = admitted_beside_a_denied_client(&service, shared).await;
        assert!(admitted >= ENOUGH, "{shared}: {admitted} of {REQUESTS}");
    }
}

/// Without the deny cache each denied request reserves a unit of the bucket and gives it back a moment later.
#[tokio::test(flavor = "multi_thread")]
async fn denied_requests_do_not_drain_a_bucket_without_the_deny_cache() {
    let cluster = Cluster::start();
    let service =
        plan(&cluster.urls().join(","), "cluster").set("store.redis.deny_cache.enabled", false).start();
    let client = DeniedClient::start(&service, "fast").await;
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut admitted = 0;
    for _ in 0..REQUESTS {
        admitted += usize::from(rls.send_one("d", &[("fast", "0")]).await.0 == Code::Ok);
    }
    client.end().await;
    assert!(admitted >= ENOUGH, "{admitted} of {REQUESTS}");
}
