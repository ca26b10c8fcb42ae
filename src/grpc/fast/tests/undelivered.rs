//! Slots of answers that did not arrive.

use engine::{
    Algorithm, Charges, Defaults, DomainSpec, Limit, LimitSpec, NodeSpec, Outcomes, Period, RuleSpec,
    StoreError, Unit, ValueHashing,
};
use tokio::sync::Semaphore;

use super::super::tests::*;
use super::raw_client::RawClient;
use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitResponse;

/// Slots in memory. Answers as many requests as the semaphore permits.
struct Slots {
    memory: MemoryStore<SystemClock>,
    answers: Arc<Semaphore>,
}

impl Store for Slots {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let outcomes = self.memory.decide(charges).await;
        self.answers.acquire().await.expect("an open semaphore").forget();
        outcomes
    }
}

async fn client(slots: u64, answers: usize) -> (RawClient, Arc<Semaphore>) {
    let metrics = Metrics::new(800_000).expect("different names");
    let spec = LimitSpec::new(Algorithm::Concurrency, slots, Period::one(Unit::Hour));
    let limit = Limit::new(LimitSpec { settle: true, ..spec }).expect("a valid limit");
    let rule = RuleSpec { limits: vec![limit], ..RuleSpec::default() };
    let node = NodeSpec { key: "k".to_owned(), rule: Some(rule), ..NodeSpec::default() };
    let domain = DomainSpec { domain: "d".to_owned(), descriptors: vec![node], ..DomainSpec::default() };
    let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE);
    let memory = MemoryStore::new(MemoryOptions::default(), SystemClock);
    let answers = Arc::new(Semaphore::new(answers));
    let store = Slots { memory, answers: Arc::clone(&answers) };
    let handler = handler(rules.expect("valid rules"), store, &metrics);
    let server = server_of(handler, 10_000, &CancellationToken::new());
    (RawClient::connect(server).await.0, answers)
}

impl RawClient {
    /// Resets a call, and waits until its slot is released.
    async fn take_back(&mut self, stream: u32) {
        self.reset(stream).await.expect("an open connection");
        tokio::time::sleep(SETTLE).await;
    }

    async fn is_admitted(&mut self) -> bool {
        let answer = self.answer().await.expect("an open connection");
        RateLimitResponse::decode(&answer[5..]).expect("an answer").overall_code == 1
    }
}

#[tokio::test(start_paused = true)]
async fn the_reset_of_an_answered_call_releases_its_slot_only() {
    let (mut client, _) = client(2, 1_000).await;
    for _ in 0..2 {
        assert!(client.is_admitted().await);
    }
    let denied = client.next;
    assert!(!client.is_admitted().await);
    client.take_back(denied).await;
    assert!(!client.is_admitted().await);
    // A repeated reset releases no other slot.
    for _ in 0..2 {
        client.take_back(1).await;
    }
    assert!(client.is_admitted().await);
    client.take_back(1).await;
    assert!(!client.is_admitted().await);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_reset_just_before_its_answer_releases_its_slot() {
    let (mut client, answers) = client(1, 0).await;
    client.send(1).await.expect("an open connection");
    tokio::time::sleep(SETTLE).await;
    // The connection's task is polled before the call's.
    client.reset(1).await.expect("an open connection");
    answers.add_permits(1_000);
    tokio::time::sleep(SETTLE).await;
    assert!(client.is_admitted().await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_forgotten_after_many_others() {
    let (mut client, _) = client(300, 1_000).await;
    for _ in 0..300 {
        assert!(client.is_admitted().await);
    }
    client.reset_last(300).await.expect("an open connection");
    tokio::time::sleep(SETTLE).await;
    for left in (0..256).rev() {
        assert!(client.is_admitted().await, "{left}");
    }
    assert!(!client.is_admitted().await, "the first 44 slots stay until they end");
}
