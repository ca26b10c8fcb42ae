//! Calls that start later, because the maximum number of decisions waits for the store.

use engine::{Charges, Outcomes, StoreError};
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::super::tests::*;
use super::callers::{limited_request, rules_of_one_domain};

/// A store that answers as many requests as its semaphore has permits, each with an error.
#[derive(Clone)]
pub(super) struct SlowStore {
    asked: Arc<AtomicUsize>,
    answers: Arc<Semaphore>,
}

impl SlowStore {
    pub(super) fn new() -> Self {
        Self { asked: Arc::default(), answers: Arc::new(Semaphore::new(0)) }
    }

    pub(super) fn answer(&self, calls: usize) {
        self.answers.add_permits(calls);
    }
}

impl Store for SlowStore {
    async fn decide(&self, _: &Charges) -> Result<Outcomes, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.answers.acquire().await.expect("an open semaphore").forget();
        Err(StoreError::Timeout)
    }
}

/// Connections of one worker, whose store answers on command.
struct SlowServer {
    store: SlowStore,
    server: Arc<ConnectionServer>,
    metrics: Metrics,
    stop: CancellationToken,
}

impl SlowServer {
    fn new() -> Self {
        let metrics = Metrics::new(800_000).expect("different names");
        let store = SlowStore::new();
        let handler = handler(rules_of_one_domain(), store.clone(), &metrics);
        let stop = CancellationToken::new();
        Self { store, server: server_of(handler, 10_000, &stop), metrics, stop }
    }

    async fn connect(&self) -> (SendRequest<Bytes>, JoinHandle<()>) {
        let (ours, theirs) = tokio::io::duplex(1024 * 1024);
        let served = spawn(Arc::clone(&self.server).serve(theirs, placement(), admitted_place()));
        let (client, connection) = h2::client::handshake(ours).await.expect("HTTP/2");
        spawn(async { drop(connection.await) });
        (client, served)
    }

    /// Decisions that the store has received, once all tasks wait.
    async fn asked(&self) -> usize {
        tokio::time::sleep(SETTLE).await;
        self.store.asked.load(Ordering::Relaxed)
    }

    fn answer(&self, calls: usize) {
        self.store.answer(calls);
    }
}

async fn call(client: &SendRequest<Bytes>, calls: usize) -> Vec<OpenedCall> {
    let mut opened = Vec::new();
    for _ in 0..calls {
        opened.push(open_call(client, PATH, limited_request(), true).await);
    }
    opened
}

async fn statuses(calls: Vec<OpenedCall>) -> Vec<String> {
    join_all(calls.into_iter().map(OpenedCall::status)).await
}

#[tokio::test(start_paused = true)]
async fn a_connection_asks_for_no_more_decisions_than_the_store_takes_at_once() {
    let server = SlowServer::new();
    let (client, _) = server.connect().await;
    let calls = call(&client, 2 * DECISIONS_AT_ONCE + 10).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    server.answer(1);
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE + 1);
    server.answer(DECISIONS_AT_ONCE);
    assert_eq!(server.asked().await, 2 * DECISIONS_AT_ONCE + 1);
    server.answer(calls.len());
    // UNAVAILABLE, the status of the store's error.
    assert!(statuses(calls).await.iter().all(|status| status == "14"));
}

#[tokio::test(start_paused = true)]
async fn each_connection_has_its_share_of_the_decisions() {
    let server = SlowServer::new();
    let (busy, _) = server.connect().await;
    let _calls = call(&busy, 2 * DECISIONS_AT_ONCE).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    let (quiet, _) = server.connect().await;
    let _others = call(&quiet, DECISIONS_AT_ONCE).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE + DECISIONS_AT_ONCE / 2);
}

#[tokio::test(start_paused = true)]
async fn connections_without_calls_have_no_share_of_the_decisions() {
    let server = SlowServer::new();
    let (busy, _) = server.connect().await;
    let _calls = call(&busy, 2 * DECISIONS_AT_ONCE).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(server.connect().await);
    }
    let (quiet, _) = server.connect().await;
    let _others = call(&quiet, DECISIONS_AT_ONCE).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE + DECISIONS_AT_ONCE / 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_client_resets_before_it_starts_is_not_decided() {
    let server = SlowServer::new();
    let (client, _) = server.connect().await;
    let mut calls = call(&client, DECISIONS_AT_ONCE + 20).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    // Dropping a call resets it.
    let kept = calls.split_off(DECISIONS_AT_ONCE + 15);
    let decided = calls.drain(..DECISIONS_AT_ONCE).collect();
    drop(calls);
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    server.answer(10_000);
    statuses(kept).await;
    statuses(decided).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE + 5);
}

#[tokio::test(start_paused = true)]
async fn calls_start_when_those_before_them_are_reset() {
    let server = SlowServer::new();
    let (client, _) = server.connect().await;
    let mut calls = call(&client, DECISIONS_AT_ONCE + 20).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    drop(calls.drain(..DECISIONS_AT_ONCE));
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE + 20);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_reset_while_they_wait_do_not_end_their_connection() {
    let server = SlowServer::new();
    let (client, served) = server.connect().await;
    for _ in 0..20 {
        let mut calls = call(&client, 2 * DECISIONS_AT_ONCE).await;
        tokio::time::sleep(SETTLE).await;
        // Half of the calls that wait for the store, and half of the held calls.
        let mut number = 0;
        calls.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        tokio::time::sleep(SETTLE).await;
        server.answer(calls.len());
        assert!(statuses(calls).await.iter().all(|status| status == "14"));
    }
    assert!(!served.is_finished());
}

/// HTTP/2 lets a client that resets its calls open as many again.
#[tokio::test(start_paused = true)]
async fn calls_that_were_reset_do_not_fill_the_memory() {
    let server = SlowServer::new();
    let (client, _) = server.connect().await;
    let _decided = call(&client, DECISIONS_AT_ONCE).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    for _ in 0..50 {
        let reset = call(&client, 500).await;
        tokio::time::sleep(SETTLE).await;
        drop(reset);
        tokio::time::sleep(SETTLE).await;
    }
    let open = server.server.calls.counts.open_calls() - DECISIONS_AT_ONCE;
    assert!(open <= 2 * MAX_CONCURRENT_STREAMS as usize, "{open} calls are held");
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_before_it_starts_is_not_decided() {
    let server = SlowServer::new();
    let (client, _) = server.connect().await;
    let _decided = call(&client, DECISIONS_AT_ONCE).await;
    let request = Request::post(format!("http://server{}", PATH))
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "20m");
    let mut ready = client.clone().ready().await.expect("an open connection");
    let (response, mut sent) =
        ready.send_request(request.body(()).expect("valid"), false).expect("an open connection");
    sent.send_data(limited_request(), true).expect("an open call");
    tokio::time::sleep(Duration::from_millis(21)).await;
    server.answer(DECISIONS_AT_ONCE);
    assert_eq!(OpenedCall { response, _sent: sent }.status().await, "4", "DEADLINE_EXCEEDED");
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    let late = "ratelimitd_request_errors_total{kind=\"deadline\",transport=\"grpc\"}";
    assert_eq!(value(&server.metrics, late), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_answers_the_calls_that_it_holds() {
    let server = SlowServer::new();
    let (client, served) = server.connect().await;
    let calls = call(&client, DECISIONS_AT_ONCE + 20).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    server.stop.cancel();
    tokio::time::sleep(HOLD_AT_MOST / 2).await;
    server.answer(DECISIONS_AT_ONCE + 20);
    assert!(statuses(calls).await.iter().all(|status| status == "14"));
    drop(client);
    served.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn no_call_is_held_while_more_arrive_than_can_be_decided() {
    let server = SlowServer::new();
    let (client, _) = server.connect().await;
    let mut calls = call(&client, DECISIONS_AT_ONCE + 100).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE);
    tokio::time::sleep(HOLD_AT_MOST / 2).await;
    calls.extend(call(&client, 10).await);
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE, "it may be a burst");
    tokio::time::sleep(HOLD_AT_MOST / 2).await;
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE + 110, "it is none");
    calls.extend(call(&client, 10).await);
    assert_eq!(server.asked().await, DECISIONS_AT_ONCE + 120);
    let held = "ratelimitd_held_calls_total";
    assert_eq!(value(&server.metrics, held), 110);
    // Once the store has room, calls are held again.
    server.answer(calls.len());
    statuses(calls).await;
    let _calls = call(&client, DECISIONS_AT_ONCE + 10).await;
    assert_eq!(server.asked().await, 2 * DECISIONS_AT_ONCE + 120);
    assert_eq!(value(&server.metrics, held), 120);
}
