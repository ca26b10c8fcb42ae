//! An HTTP/2 client on a pipe, with a paused clock: clients that send only part of a call, or take only part of an
//! answer.

mod callers;
mod connection;
mod frames;
mod h2_leak;
mod header_blocks;
mod held_calls;
mod idle;
mod leaked_streams;
mod moves;
mod raw_client;
mod tonic_twin;
mod undelivered;
mod units;
mod worker;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::clock::SystemClock;
use engine::{Bounds, Enforcement, RuleSet, Store};
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use hyper::body::Bytes;
use prost::Message as _;
use store::memory::{MemoryOptions, MemoryStore};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::CallServer;
use super::connection::ConnectionServer;
use super::connection_io::BYTES_PER_POLL;
use super::decisions::Decisions;
use super::message::MessageBounds;
use super::open_calls::WorkerCounts;
use super::placement::Placement;
use super::routed_calls::StreamPlaces;
use super::undelivered::SlotAnswers;
use crate::decide::limiter::{Limiter, Rulebook};
use crate::decide::{
    CallOrigin, CertificateRights, Failures, Handler, OnInvalid, PauseEvents, Readiness, ResponseOptions,
    Rights,
};
use crate::grpc::GrpcOptions;
use crate::grpc::head::{CALL_TIMEOUT, DecisionCall, PATH};
use crate::grpc::other_services::other_services;
use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::grpc::tonic_server::MAX_CONCURRENT_STREAMS;
use crate::grpc::worker::runtime;
use crate::net::admission::Admitted;
use crate::net::listener::PortStream;
use crate::net::socket::{ClientSocket, MovedFlag};
use crate::net::{Admission, ConnectionBounds, UnfinishedBytes};
use crate::telemetry::metrics::{DeniedKeys, Metrics, Port, Transport};
use crate::telemetry::traces::{CallSpan, Tracer};

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const FINISH_WITHIN: Duration = Duration::from_secs(10);
const AGE: Duration = Duration::from_secs(3_600);
const MAX_OPEN: usize = 4;
/// More than the maximum bytes of a header block.
const UNFINISHED_BYTES: usize = 2 * 1024 * 1024;
const MAX_MESSAGE_BYTES: usize = 1_000;
const DECISIONS_AT_ONCE: usize = 256;
const HOLD_AT_MOST: Duration = Duration::from_secs(1);
/// Long enough for the tasks of client and server to run until all of them wait.
const SETTLE: Duration = Duration::from_millis(1);

/// A client of a server without rules, and the server's end of the connection.
struct Session {
    client: SendRequest<Bytes>,
    served: JoinHandle<()>,
    stop: CancellationToken,
    metrics: Metrics,
}

fn handler<S>(rules: RuleSet, store: S, metrics: &Metrics) -> Handler<S> {
    let rulebook = Arc::new(Rulebook::new(rules, metrics.clone()));
    let meter = metrics.requests(Transport::Grpc);
    Handler {
        rights: Rights::default(),
        limiter: Limiter {
            rulebook,
            store,
            enforcement: Enforcement::Enforce,
            clock: Arc::new(SystemClock),
            denied: DeniedKeys::default(),
            ledger: crate::ledger::WorkerLedger::default(),
            notices: crate::notify::WorkerNotices::default(),
            pauses: PauseEvents::default(),
        },
        bounds: Bounds { max_descriptors: 4, max_entries: 4, max_value_bytes: 100 },
        max_message_bytes: MAX_MESSAGE_BYTES,
        response: ResponseOptions::default(),
        failures: Failures::new(meter.clone()),
        on_invalid: OnInvalid::default(),
        tracer: Tracer::default(),
        meter,
    }
}

/// A server of one worker, without rules.
fn server(max_open: usize, metrics: &Metrics, stop: &CancellationToken) -> Arc<ConnectionServer> {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    server_of(handler(RuleSet::empty(), store, metrics), max_open, stop)
}

fn options() -> GrpcOptions {
    GrpcOptions {
        workers: NonZeroUsize::MIN,
        decisions_at_once: NonZeroUsize::new(DECISIONS_AT_ONCE).expect("not 0"),
        hold_at_most: HOLD_AT_MOST,
        max_connection_age: Some(AGE),
        finish_within: FINISH_WITHIN,
        fast: true,
    }
}

/// Slots that are never released.
fn no_slots() -> Arc<SlotAnswers> {
    Arc::new(SlotAnswers::new(Arc::new(|_| {})))
}

/// Everything that a client has sent arrives in one poll of its connection.
fn server_of<S: Store + 'static>(
    handler: Handler<S>,
    max_open: usize,
    stop: &CancellationToken,
) -> Arc<ConnectionServer> {
    let options = options();
    let bounds =
        MessageBounds { max_bytes: MAX_MESSAGE_BYTES, unfinished: UnfinishedBytes::new(UNFINISHED_BYTES) };
    let mut counts = WorkerCounts::new(&options, handler.failures.clone(), handler.meter.clone());
    counts.max_open = max_open;
    let calls = CallServer {
        counts: Arc::new(counts),
        bounds,
        routes: other_services(Readiness::not_ready(&[]), handler.meter.clone(), stop.clone())
            .expect("a valid description of the services"),
        decisions: Decisions::new(handler),
    };
    Arc::new(ConnectionServer {
        calls: Arc::new(calls),
        streams: StreamPlaces::default(),
        options,
        bytes_per_poll: usize::MAX,
        stop: stop.clone(),
    })
}

impl Session {
    /// The client takes `window` bytes of each answer.
    async fn start(window: u32) -> Self {
        let metrics = Metrics::new(800_000).expect("different names");
        let stop = CancellationToken::new();
        let server = server(MAX_OPEN, &metrics, &stop);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let served = spawn(server.serve(theirs, placement(), admitted_place()));
        let handshake = h2::client::Builder::new().initial_window_size(window).handshake(ours);
        let (client, connection) = handshake.await.expect("HTTP/2");
        spawn(async { drop(connection.await) });
        Self { client, served, stop, metrics }
    }

    /// Sends the headers of a call and `data`, and ends the call if `is_complete`.
    async fn call(&mut self, path: &str, data: Bytes, is_complete: bool) -> OpenedCall {
        open_call(&self.client, path, data, is_complete).await
    }

    /// Value of `ratelimitd_request_errors_total` for gRPC.
    fn failures(&self, kind: &str) -> u64 {
        value(
            &self.metrics,
            &format!("ratelimitd_request_errors_total{{kind=\"{kind}\",transport=\"grpc\"}}"),
        )
    }
}

fn value(metrics: &Metrics, series: &str) -> u64 {
    let text = metrics.render().expect("metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(series)).expect("the series exists");
    value.trim().parse().expect("a number")
}

async fn open_call(client: &SendRequest<Bytes>, path: &str, data: Bytes, is_complete: bool) -> OpenedCall {
    let uri = format!("http://server{path}");
    let request = Request::post(uri).header("content-type", "application/grpc").body(());
    let request = request.expect("a valid request");
    let mut client = client.clone().ready().await.expect("an open connection");
    let (response, mut sent) = client.send_request(request, false).expect("an open connection");
    if is_complete || !data.is_empty() {
        sent.send_data(data, is_complete).expect("an open call");
    }
    OpenedCall { response, _sent: sent }
}

#[expect(clippy::disallowed_methods, reason = "the tests join these tasks or drop their runtime")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

struct OpenedCall {
    response: h2::client::ResponseFuture,
    /// Dropping it would reset the call.
    _sent: h2::SendStream<Bytes>,
}

impl OpenedCall {
    async fn headers(self) -> Response<RecvStream> {
        self.response.await.expect("an answer")
    }

    /// The answer's status, from its headers or its trailers.
    async fn status(self) -> String {
        let (head, mut body) = self.headers().await.into_parts();
        while let Some(data) = body.data().await {
            let length = data.expect("a complete answer").len();
            body.flow_control().release_capacity(length).expect("received bytes");
        }
        let trailers = body.trailers().await.expect("a complete answer");
        let status = |headers: &HeaderMap| Some(headers.get("grpc-status")?.to_str().ok()?.to_owned());
        status(&head.headers).or_else(|| status(&trailers?)).expect("a status")
    }
}

/// A gRPC frame: flag, length, message.
fn framed(flag: u8, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a short message");
    [&[flag], &length.to_be_bytes()[..], message].concat().into()
}

fn valid_request() -> Bytes {
    let entry = Entry { key: b"k".to_vec(), value: b"v".to_vec() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest { domain: b"d".to_vec(), descriptors: vec![descriptor], hits_addend: 0 };
    framed(0, &request.encode_to_vec())
}

/// `decisions.rs` has the reason. The future of a worker's store is 24 bytes larger.
#[test]
fn the_future_of_a_decision_fits_into_a_small_block() {
    let metrics = Metrics::new(800_000).expect("different names");
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    let decisions = Decisions::new(handler(RuleSet::empty(), store, &metrics));
    let (origin, span) = (CallOrigin::default(), CallSpan::default());
    let future = decisions.answer(DecisionCall::ShouldRateLimit, Ok(valid_request()), origin, span);
    assert!(size_of_val(&*future) <= 1_024 - 24, "{} bytes", size_of_val(&*future));
}

#[tokio::test(start_paused = true)]
async fn every_refused_call_is_counted_and_answered_with_its_status() {
    let mut session = Session::start(65_535).await;
    let ok = session.call(PATH, valid_request(), true).await.status().await;
    assert_eq!((ok.as_str(), session.failures("invalid")), ("0", 0));
    // (body of the call, status)
    let table = [
        (Bytes::new(), "3"),
        (framed(1, b"compressed"), "12"),
        (framed(0, b"\xff"), "3"),
        (framed(0, &[0; 1_001]), "11"),
        (framed(0, b""), "3"),
        ([valid_request(), valid_request()].concat().into(), "3"),
    ];
    let calls = u64::try_from(table.len()).expect("few");
    for (body, status) in table {
        let sent = format!("{body:?}");
        assert_eq!(session.call(PATH, body, true).await.status().await, status, "{sent}");
    }
    assert_eq!(session.failures("invalid"), calls);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_request_does_not_arrive_ends_after_two_seconds() {
    let mut session = Session::start(65_535).await;
    let half = valid_request().split_to(10);
    let start = Instant::now();
    assert_eq!(session.call(PATH, half, false).await.status().await, "4");
    assert_eq!(start.elapsed(), Duration::from_secs(2));
    assert_eq!(session.failures("incomplete"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_is_reset_after_the_timeout() {
    let mut session = Session::start(0).await;
    let start = Instant::now();
    let mut answer = session.call(PATH, valid_request(), true).await.headers().await;
    let error = answer.body_mut().data().await.expect("not the end").expect_err("a reset");
    assert_eq!(error.reason(), Some(Reason::CANCEL));
    assert!((CALL_TIMEOUT..CALL_TIMEOUT + SETTLE).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert_eq!(session.failures("untaken"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_may_hold_as_many_untaken_answers_as_the_bound_allows() {
    let mut session = Session::start(0).await;
    let mut untaken = Vec::new();
    for _ in 0..MAX_OPEN {
        untaken.push(session.call(PATH, valid_request(), true).await.headers().await);
    }
    assert_eq!(session.call(PATH, valid_request(), true).await.status().await, "14");
    assert_eq!(session.failures("overloaded"), 1);
    // A client that resets its calls can open new ones.
    drop(untaken);
    tokio::time::sleep(SETTLE).await;
    session.call(PATH, valid_request(), true).await.headers().await;
    assert_eq!(session.failures("overloaded"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_lasts_until_the_server_stops_and_does_not_delay_the_stop() {
    let mut session = Session::start(65_535).await;
    let watch = session.call(WATCH, framed(0, b""), true).await;
    let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let reflection = session.call(reflection, Bytes::new(), false).await;
    let watch = watch.headers().await;
    tokio::time::sleep(10 * CALL_TIMEOUT).await;
    let stopped = Instant::now();
    session.stop.cancel();
    let (head, mut body) = watch.into_parts();
    assert_eq!(head.headers.get("grpc-status"), None, "the stream is open");
    body.data().await.expect("the status of health").expect("a message");
    let trailers = body.trailers().await.expect("a complete answer").expect("trailers");
    assert_eq!(trailers["grpc-status"], "14");
    assert_eq!(reflection.status().await, "14");
    session.served.await.expect("no panic");
    assert!(stopped.elapsed() <= SETTLE, "{:?}", stopped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_answers_delays_the_stop_by_one_second() {
    let mut session = Session::start(0).await;
    let untaken = session.call(PATH, valid_request(), true).await.headers().await;
    let stopped = Instant::now();
    session.stop.cancel();
    session.served.await.expect("no panic");
    assert!(stopped.elapsed() <= Duration::from_secs(1) + SETTLE, "{:?}", stopped.elapsed());
    drop(untaken);
}

#[tokio::test(start_paused = true)]
async fn a_connection_closes_at_its_age_with_its_streams() {
    let mut session = Session::start(65_535).await;
    let start = Instant::now();
    let watch = session.call(WATCH, framed(0, b""), true).await;
    assert_eq!(watch.status().await, "14");
    session.served.await.expect("no panic");
    assert!((AGE..AGE + SETTLE).contains(&start.elapsed()), "{:?}", start.elapsed());
}

/// A port's only connection.
fn admitted() -> Admitted {
    let metrics = Metrics::new(800_000).expect("different names");
    let bounds = ConnectionBounds { total: 1, per_address: 1 };
    let admission = Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc));
    admission.admit([127, 0, 0, 1].into()).expect("the first connection")
}

fn admitted_place() -> (Arc<Admitted>, CertificateRights) {
    (Arc::new(admitted()), CertificateRights::default())
}

/// Placement of a connection that stays.
fn placement() -> Arc<Placement> {
    Placement::new(MovedFlag::default())
}

/// Both ends of a TCP connection; the server's end is not served yet.
async fn connect() -> (TcpStream, ClientSocket) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    let server = PortStream::Left(accepted.expect("a connection").0);
    (client.expect("a connection"), ClientSocket::from(server))
}

/// Sends the same call `calls` times. Without data the calls stay open.
async fn send_calls(stream: TcpStream, calls: usize, path: &str, data: &Bytes) -> Vec<OpenedCall> {
    let handshake = h2::client::Builder::new().initial_max_send_streams(calls).handshake(stream);
    let (client, connection) = handshake.await.expect("the preface is sent");
    spawn(async { drop(connection.await) });
    let mut opened = Vec::new();
    for _ in 0..calls {
        opened.push(open_call(&client, path, data.clone(), !data.is_empty()).await);
    }
    opened
}

#[test]
fn a_call_is_answered_before_the_thousand_calls_of_another_connection() {
    runtime().expect("a runtime").block_on(call_beside_a_thousand());
}

async fn call_beside_a_thousand() {
    const GREEDY: usize = 1_000;
    let (metrics, stop) = (Metrics::new(800_000).expect("different names"), CancellationToken::new());
    let mut server = server(2 * GREEDY, &metrics, &stop);
    Arc::get_mut(&mut server).expect("not shared yet").bytes_per_poll = BYTES_PER_POLL;
    let ((greedy, greedy_served), (modest, modest_served)) = (connect().await, connect().await);
    let _greedy = send_calls(greedy, GREEDY, PATH, &valid_request()).await;
    let modest = send_calls(modest, 1, PATH, &valid_request()).await.pop().expect("one call");
    // Both clients write before the server reads.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    for served in [greedy_served, modest_served] {
        spawn(Arc::clone(&server).serve(served, placement(), admitted_place()));
    }
    assert_eq!(modest.status().await, "0");
    let decided = value(&metrics, "ratelimitd_request_duration_seconds_count{transport=\"grpc\"}");
    assert!(decided < 200, "{decided} calls were decided before the modest client had its answer");
}
