//! The store can tell which calls come on the same connection.

use engine::{Caller, Charges, Defaults, DomainSpec, Outcomes, StoreError, ValueHashing};
use parking_lot::Mutex;

use super::super::tests::*;
use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

/// Answers every request with an error, and records the callers.
struct CallerStore(Arc<Mutex<Vec<Caller>>>);

impl Store for CallerStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        self.0.lock().push(charges.caller());
        Err(StoreError::Timeout)
    }
}

pub(super) fn limited_request() -> Bytes {
    let entry = Entry { key: b"k".to_vec(), value: b"v".to_vec() };
    // Unit 1 is a second.
    let limit = RateLimitOverride { requests_per_unit: 5, unit: 1, ..RateLimitOverride::default() };
    let descriptor =
        RateLimitDescriptor { entries: vec![entry], limit: Some(limit), ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: b"d".to_vec(), descriptors: vec![descriptor], hits_addend: 0 };
    framed(0, &request.encode_to_vec())
}

/// Rules that apply only the limits that requests bring.
pub(super) fn rules_of_one_domain() -> RuleSet {
    let domain = DomainSpec { domain: "d".to_owned(), ..DomainSpec::default() };
    RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules")
}

#[tokio::test(start_paused = true)]
async fn each_connection_is_a_caller_of_its_own() {
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let callers = Arc::default();
    let handler = handler(rules_of_one_domain(), CallerStore(Arc::clone(&callers)), &metrics);
    let server = server_of(handler, MAX_OPEN, &stop);
    for _ in 0..2 {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        spawn(Arc::clone(&server).serve(theirs, placement(), admitted_place()));
        let (client, connection) = h2::client::handshake(ours).await.expect("HTTP/2");
        spawn(async { drop(connection.await) });
        for _ in 0..2 {
            open_call(&client, PATH, limited_request(), true).await.status().await;
        }
    }
    let callers = callers.lock();
    assert_eq!((callers[0], callers[2]), (callers[1], callers[3]), "{callers:?}");
    assert_ne!(callers[0], callers[2]);
}
