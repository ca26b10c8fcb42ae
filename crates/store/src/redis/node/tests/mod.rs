//! A node in front of a scripted server, under paused time.

mod batches;
mod goodput;
mod hangs;
mod jitter;
mod load;
mod overload;
mod queue;
mod recovery;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::probe::probe_request;
use super::*;
use crate::breaker::BreakerOptions;
use crate::observer::{BreakerTransition, NoopObserver, Observer};
use crate::redis::address::Address;
use crate::redis::error::Redirect;
use crate::redis::tasks::TaskError;
use crate::redis::testing::{FakeServer, PanickingObserver, Reply};

const MS: Duration = Duration::from_millis(1);

/// A node of one connection, whose server is `redis.test:6379`.
struct Case {
    node: Node,
    tasks: Tasks,
}

fn options() -> RedisOptions {
    let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
    RedisOptions { urls, connections: 1, ..RedisOptions::default() }
}

fn case(options: &RedisOptions, observer: impl Observer) -> Case {
    let tasks = Tasks::new();
    let target = Target::new(options).expect("good options");
    let node = Node::start(String::new(), target, options, QueueDepth::new(Arc::new(observer)), &tasks);
    Case { node, tasks }
}

fn server(handler: impl Fn(&[String]) -> Option<Reply> + Send + Sync + 'static) -> FakeServer {
    FakeServer::listen("redis.test", 6_379, handler)
}

/// A server that answers script calls with `reply`, and other commands as usual.
fn deciding(reply: impl Fn(&[String]) -> Reply + Send + Sync + 'static) -> FakeServer {
    server(script_calls(reply))
}

fn script_calls(
    reply: impl Fn(&[String]) -> Reply + Send + Sync + 'static,
) -> impl Fn(&[String]) -> Option<Reply> + Send + Sync + 'static {
    move |command| command[0].starts_with("EVAL").then(|| reply(command))
}

impl Case {
    async fn call(&self, mode: CallMode, within: Duration) -> Result<RequestReply, CallError> {
        self.node.call(probe_request("test:", None), mode, Instant::now() + within).await
    }

    /// Sends a request for one counter in a batch, with the default timeout.
    async fn decide(&self) -> Result<RequestReply, StoreError> {
        Ok(self.call(CallMode::Batched(None), 15 * MS).await?)
    }
}

/// Counters per script call.
fn sizes(server: &FakeServer) -> Vec<usize> {
    server.commands("EVALSHA").iter().map(|call| call[2].parse().expect("the number of keys")).collect()
}

#[tokio::test(start_paused = true)]
async fn of_several_calls_only_those_with_noscript_are_sent_again() {
    // The first call is for slot 3.
    let calls = Arc::new(Mutex::new(0));
    let server = deciding(move |call| {
        let mut calls = calls.lock();
        *calls += 1;
        if *calls == 1 { Reply::Error("NOSCRIPT No matching script.") } else { Reply::granted(call) }
    });
    let case = case(&options(), NoopObserver);
    let modes = [CallMode::Batched(Some(7)), CallMode::Batched(Some(3)), CallMode::Batched(Some(7))];
    for answer in join_all(modes.map(|mode| case.call(mode, 15 * MS))).await {
        answer.expect("an answer");
    }
    assert_eq!(sizes(&server), [1, 2]);
    let again: Vec<_> = server.commands("EVAL").iter().map(|call| call[2].clone()).collect();
    assert_eq!(again, ["1"]);
}

#[derive(Clone, Debug, Default)]
struct Events {
    queue_depths: Arc<Mutex<Vec<usize>>>,
    breaker_states: Arc<Mutex<Vec<BreakerState>>>,
}

impl Observer for Events {
    fn queue_depth(&self, requests: usize) {
        self.queue_depths.lock().push(requests);
    }
    fn breaker(&self, transition: BreakerTransition<'_>) {
        self.breaker_states.lock().push(transition.to);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_while_a_call_is_in_flight_share_the_next_call() {
    let server = deciding(|call| Reply::After(2 * MS, Box::new(Reply::granted(call))));
    let case = case(&options(), NoopObserver);
    let later = async {
        sleep(MS).await;
        join_all((0..5).map(|_| case.decide())).await
    };
    let (first, others) = tokio::join!(case.decide(), later);
    first.expect("an answer");
    for answer in others {
        assert_eq!(answer.expect("an answer").numbers.as_slice(), [0, 1]);
    }
    assert_eq!(sizes(&server), [1, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_bounded_by_its_counters() {
    let server = deciding(Reply::granted);
    let case = case(&RedisOptions { max_batch: 2, ..options() }, NoopObserver);
    for answer in join_all((0..5).map(|_| case.decide())).await {
        answer.expect("an answer");
    }
    assert_eq!(sizes(&server), [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn noscript_is_answered_with_the_text_of_the_script() {
    let server = deciding(|call| match call[0].as_str() {
        "EVALSHA" => Reply::Error("NOSCRIPT No matching script."),
        _ => Reply::granted(call),
    });
    let case = case(&options(), NoopObserver);
    case.decide().await.expect("an answer");
    assert_eq!((server.commands("EVALSHA").len(), server.commands("EVAL").len()), (1, 1));
    assert!(server.commands("EVAL")[0][1].contains("redis.call"), "the text, not the hash");
}

#[tokio::test(start_paused = true)]
async fn no_other_error_is_retried() {
    let server = deciding(|_| Reply::Error("OOM command not allowed when used memory > 'maxmemory'."));
    let case = case(&options(), NoopObserver);
    let refused = "OOM command not allowed when used memory > 'maxmemory'.".to_owned();
    assert_eq!(case.decide().await, Err(StoreError::Refused(refused)));
    assert_eq!((server.commands("EVALSHA").len(), server.commands("EVAL").len()), (1, 0));
    assert_eq!(server.connections(), 1, "the connection is in order");
}

#[tokio::test(start_paused = true)]
async fn after_a_malformed_reply_the_connection_is_replaced() {
    let server = deciding(|_| Reply::Array(vec![Reply::Int(1)]));
    let case = case(&options(), NoopObserver);
    assert!(matches!(case.decide().await, Err(StoreError::Malformed(_))));
    server.handle(script_calls(Reply::granted));
    case.decide().await.expect("an answer");
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_is_a_timeout_and_keeps_the_connection() {
    let server = deciding(|call| Reply::After(20 * MS, Box::new(Reply::granted(call))));
    let case = case(&options(), NoopObserver);
    let asked = Instant::now();
    assert_eq!(case.decide().await, Err(StoreError::Timeout));
    assert_eq!(asked.elapsed(), 15 * MS);
    server.handle(script_calls(Reply::granted));
    sleep(10 * MS).await;
    case.decide().await.expect("an answer");
    assert_eq!(server.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_reply_is_replaced_after_twice_the_timeout() {
    let server = deciding(|_| Reply::Silence);
    let case = case(&options(), NoopObserver);
    assert_eq!(case.decide().await, Err(StoreError::Timeout));
    server.handle(script_calls(Reply::granted));
    sleep(14 * MS).await;
    assert_eq!(server.connections(), 1);
    case.decide().await.expect("an answer");
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_returns_the_request_and_does_not_count_as_a_failure() {
    let _server = deciding(|_| Reply::Error("MOVED 42 other.test:7000"));
    let case = case(&options(), NoopObserver);
    for _ in 0..20 {
        let Err(CallError::NotExecuted(returned)) = case.call(CallMode::Batched(Some(42)), 15 * MS).await
        else {
            panic!("the request was executed");
        };
        let moved = Redirect::Moved(Address { host: "other.test".to_owned(), port: 7_000 });
        assert_eq!(returned.cause, Cause::Redirected(moved));
        assert_eq!(returned.request.key_count(), 1);
    }
    assert_eq!(case.node.breaker_state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn without_slots_a_redirect_is_a_failure_also_of_the_probe() {
    let _server = deciding(|_| Reply::Error("CLUSTERDOWN Hash slot not served"));
    let case = case(&options(), NoopObserver);
    for _ in 0..5 {
        case.decide().await.expect_err("no slot is served");
    }
    for _ in 0..10 {
        assert_ne!(case.node.breaker_state(), BreakerState::Closed);
        sleep(30 * MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_probe_of_a_cluster_node_accepts_a_redirect() {
    let server = deciding(|_| Reply::Error("OOM command not allowed"));
    let case = case(&RedisOptions { topology: Topology::Cluster, ..options() }, NoopObserver);
    for _ in 0..5 {
        case.decide().await.expect_err("no memory");
    }
    assert_eq!(case.node.breaker_state(), BreakerState::Open);
    server.handle(script_calls(|_| Reply::Error("MOVED 42 other.test:7000")));
    sleep(30 * MS).await;
    assert_eq!(case.node.breaker_state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn each_slot_has_a_call_of_its_own_and_an_error_of_its_own() {
    let modes = [
        CallMode::Batched(Some(7)),
        CallMode::Asking,
        CallMode::Batched(Some(3)),
        CallMode::Single,
        CallMode::Batched(Some(7)),
    ];
    // Calls come in the order of their slots, slot 3 first; requests with their own call come last.
    let seen = Arc::new(Mutex::new(0));
    let server = deciding(move |call| {
        let mut seen = seen.lock();
        *seen += 1;
        if *seen == 1 { Reply::Error("CLUSTERDOWN The cluster is down") } else { Reply::granted(call) }
    });
    let case = case(&options(), NoopObserver);
    let answers = join_all(modes.map(|mode| case.call(mode, 15 * MS))).await;
    let is_answered: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(is_answered, [true, true, false, true, true]);
    assert_eq!(sizes(&server), [1, 2, 1, 1]);
    assert_eq!(server.commands("ASKING").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_on_failures_and_a_probe_closes_it() {
    let server = deciding(|_| Reply::Error("READONLY You can't write against a read only replica."));
    let events = Events::default();
    let case = case(&options(), events.clone());
    // A replica's connection is replaced after a pause, so the failures take some time.
    while case.node.breaker_state() == BreakerState::Closed {
        case.decide().await.expect_err("a replica");
        sleep(20 * MS).await;
    }
    let sent = server.commands("EVALSHA").len();
    let error = case.call(CallMode::Batched(None), 15 * MS).await.expect_err("the breaker is open");
    assert!(matches!(error, CallError::NotExecuted(_)), "{error:?}");
    assert!(matches!(StoreError::from(error), StoreError::Open(_)));
    assert_eq!(server.commands("EVALSHA").len(), sent, "refused without a call");

    server.handle(script_calls(Reply::granted));
    sleep(300 * MS).await;
    case.decide().await.expect("the probe has closed the breaker");
    let states = events.breaker_states.lock();
    assert_eq!(states[..2], [BreakerState::Open, BreakerState::HalfOpen]);
    assert_eq!(states.last(), Some(&BreakerState::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_creates_counters_and_cannot_change_them_does_not_close_the_breaker() {
    let created = Mutex::new(Vec::new());
    let server = deciding(move |call| {
        let mut created = created.lock();
        if created.contains(&call[3]) {
            return Reply::Error("NOPERM User default has no permissions to run the 'set' command");
        }
        created.push(call[3].clone());
        Reply::granted(call)
    });
    let case = case(&options(), NoopObserver);
    let request = probe_request("test:", None);
    let change =
        async || case.node.call(request.clone(), CallMode::Batched(None), Instant::now() + 15 * MS).await;
    change().await.expect("the counter is new");
    for _ in 0..5 {
        change().await.expect_err("the counter is there");
    }
    for _ in 0..100 {
        assert_ne!(case.node.breaker_state(), BreakerState::Closed);
        sleep(10 * MS).await;
    }
    server.handle(script_calls(Reply::granted));
    sleep(300 * MS).await;
    assert_eq!(case.node.breaker_state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_when_the_breaker_opens_are_not_sent() {
    let server = deciding(|_| Reply::Silence);
    let breaker = BreakerOptions { failures: 1, ..BreakerOptions::default() };
    let case = case(&RedisOptions { breaker, ..options() }, NoopObserver);
    let waiting = async {
        sleep(10 * MS).await;
        case.call(CallMode::Batched(None), 15 * MS).await
    };
    let (first, waiting) = tokio::join!(case.decide(), waiting);
    assert_eq!(first, Err(StoreError::Timeout));
    assert!(matches!(waiting, Err(CallError::NotExecuted(_))), "{waiting:?}");
    assert_eq!(sizes(&server), [1]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_dropped_without_a_connection_leave_the_queue_depth() {
    let server = deciding(|_| Reply::Silence);
    let events = Events::default();
    let breaker = BreakerOptions { failures: 100, ..BreakerOptions::default() };
    let case = case(&RedisOptions { max_batch: 1, breaker, ..options() }, events.clone());
    for answer in join_all((0..3).map(|_| case.decide())).await {
        assert_eq!(answer, Err(StoreError::Timeout));
    }
    // The first call still waits for its reply, and then there is no connection.
    assert_eq!(*events.queue_depths.lock(), [2]);
    server.handle(|_| Some(Reply::Silence));
    sleep(100 * MS).await;
    assert_eq!(events.queue_depths.lock().last(), Some(&0));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_pinged_and_a_dead_one_costs_no_request() {
    let server = deciding(Reply::granted);
    let case = case(&options(), NoopObserver);
    case.decide().await.expect("an answer");
    let pings = server.commands("PING").len();
    sleep(1_000 * MS).await;
    assert!(server.commands("PING").len() > pings, "idle");
    server.handle(|command| (command[0] == "PING").then_some(Reply::Close));
    sleep(600 * MS).await;
    server.handle(|_| None);
    sleep(100 * MS).await;
    case.decide().await.expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_closed_node_answers_what_waits_and_ends_its_tasks() {
    let _server = deciding(|call| Reply::After(2 * MS, Box::new(Reply::granted(call))));
    let case = case(&options(), NoopObserver);
    let closing = async {
        sleep(MS).await;
        let waiting = case.decide();
        let close = async { case.node.close() };
        let (answer, ()) = tokio::join!(waiting, close);
        answer.expect("it waited already");
        assert!(matches!(case.decide().await, Err(StoreError::Unreachable(_))), "closed");
    };
    let (answer, ()) = tokio::join!(case.decide(), closing);
    answer.expect("an answer");
    assert_eq!(case.tasks.join().await, Ok(()));
    timeout(60_000 * MS, case.tasks.died()).await.expect_err("no task has died");
}

#[tokio::test(start_paused = true)]
async fn a_batcher_that_panics_fails_its_requests_and_is_reported_at_once() {
    let _server = deciding(Reply::granted);
    let case = case(&options(), PanickingObserver::AtBatch);
    let asked = Instant::now();
    assert_eq!(case.decide().await, Err(ended_without_answer()));
    let message = "a batch of 1".to_owned();
    assert_eq!(case.tasks.died().await, TaskError::Panicked { task: "batcher", message });
    assert_eq!(asked.elapsed(), Duration::ZERO);
}
