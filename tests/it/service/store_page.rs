//! `/store` of the admin port: the state of the store in normal operation and in an outage.

use serde_json::{Value, json};

use crate::support::grpc::Rls;
use crate::support::http;
use crate::support::process::Ratelimitd;

pub(crate) const RULES: &str = "
domain: d
descriptors:
  - { key: k, rate_limit: { unit: year, requests_per_unit: 1, algorithm: gcra, on_store_failure: allow } }
";
pub(crate) const SECRET: &str = "hunter2";

pub(crate) fn page(service: &Ratelimitd) -> Value {
    let answer = http::get(service.admin_port(), "/store", &[]).expect("an answer");
    assert!(!answer.body.contains(SECRET), "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_store_reports_its_number_of_keys() {
    let service = Ratelimitd::start(RULES);
    Rls::connect(service.grpc_port()).await.send_one("d", &[("k", "x")]).await;
    assert_eq!(page(&service), json!({"kind": "memory", "memory": {"keys": 1, "evictions": 0}}));
}
