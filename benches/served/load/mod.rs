//! The load: a closed loop over HTTP/2 with a fixed number of calls in flight, or an open loop with a fixed rate, of
//! single calls or of bursts.
//!
//! The generator shares the cores with the measured processes, so it costs little: it sends messages that were encoded
//! beforehand, uses h2 directly in the open loop, and writes the frames itself in the closed loop. In the open loop the
//! latency of a call counts from the time when it was due, not from the time when it was sent.

mod closed;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

const AUTHORITY: &str = "bench";
const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// How calls are started.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// This number of calls is always in flight.
    Closed { in_flight: usize },
    /// This number of calls is due each second.
    Open { per_second: u64 },
    /// This number of calls is due at once, again and again.
    Bursts { calls: u64, every: Duration },
}

impl fmt::Display for Pace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed { in_flight } => write!(formatter, "{in_flight}"),
            Self::Open { per_second } => write!(formatter, "{per_second}/s"),
            Self::Bursts { calls, every } => write!(formatter, "{calls} every {every:?}"),
        }
    }
}

/// One run of the generator: target, rate and duration.
#[derive(Clone, Debug)]
pub struct Load {
    pub target: SocketAddr,
    pub connections: usize,
    pub pace: Pace,
    pub duration: Duration,
    /// gRPC frames, sent in turn.
    pub messages: Arc<Vec<Bytes>>,
    /// For connections by TLS, to a server of the name `localhost`. Not in a closed loop.
    pub tls: Option<Arc<ClientConfig>>,
}

/// The end of a call.
enum Answer {
    Ok,
    OverLimit,
    /// A gRPC error.
    Error,
    /// None: the stream or the connection ended.
    Broken,
}

/// The results of all calls.
#[derive(Debug)]
pub struct Tally {
    /// Calls with a decision.
    pub answered: u64,
    pub over_limit: u64,
    /// Calls with a gRPC error.
    pub failed: u64,
    /// Calls without an answer: their stream or connection ended.
    pub broken: u64,
    pub elapsed: Duration,
    /// The latency of calls with a decision, in microseconds.
    pub latency: Histogram<u64>,
    /// The latency of calls with a gRPC error, in microseconds.
    pub failure_latency: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are valid");
        Self {
            answered: 0,
            over_limit: 0,
            failed: 0,
            broken: 0,
            elapsed: Duration::ZERO,
            failure_latency: latency.clone(),
            latency,
        }
    }

    fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.over_limit += other.over_limit;
        self.failed += other.failed;
        self.broken += other.broken;
        self.latency += &other.latency;
        self.failure_latency += &other.failure_latency;
    }

    fn record(&mut self, answer: &Answer, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1);
        match answer {
            Answer::Ok => self.answered += 1,
            Answer::OverLimit => {
                self.answered += 1;
                self.over_limit += 1;
            }
            Answer::Error => {
                self.failed += 1;
                self.failure_latency.saturating_record(us);
                return;
            }
            Answer::Broken => {
                self.broken += 1;
                return;
            }
        }
        self.latency.saturating_record(us);
    }
}

/// Sends the load from one thread per connection, but from at most two threads.
pub fn generate(load: &Load) -> Tally {
    let threads = load.connections.min(2);
    let started = Instant::now();
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let load = load.clone();
            std::thread::spawn(move || worker(&load, thread, threads))
        })
        .collect();
    let mut tally = Tally::new();
    for worker in workers {
        tally.add(&worker.join().expect("no worker panics"));
    }
    tally.elapsed = started.elapsed();
    tally
}

fn worker(load: &Load, thread: usize, threads: usize) -> Tally {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async {
        let mut callers = JoinSet::new();
        for connection in (thread..load.connections).step_by(threads) {
            let stream = connect(load.target).await;
            let load = load.clone();
            match load.pace {
                Pace::Closed { in_flight } => {
                    let each = in_flight / load.connections;
                    callers.spawn_local(closed::run(stream, load, each, connection * 7_919));
                }
                Pace::Open { per_second } => {
                    let rate = (per_second / load.connections as u64).max(1);
                    let due = move |n| Duration::from_micros(n * 1_000_000 / rate);
                    callers.spawn_local(open(stream, load, due));
                }
                Pace::Bursts { calls, every } => {
                    // The calls of a burst that are left over go to the first connections.
                    let (connections, place) = (load.connections as u64, connection as u64);
                    let each = calls / connections + u64::from(place < calls % connections);
                    let due = move |n: u64| every * u32::try_from(n / each).expect("a run of days");
                    if each > 0 {
                        callers.spawn_local(open(stream, load, due));
                    }
                }
            }
        }
        let mut tally = Tally::new();
        while let Some(done) = callers.join_next().await {
            tally.add(&done.expect("no caller panics"));
        }
        tally
    }))
}

async fn connect(target: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(target).await.expect("the target accepts connections");
    stream.set_nodelay(true).expect("a TCP option");
    stream
}

/// Starts HTTP/2 on a connection.
async fn start_http2(stream: TcpStream, tls: Option<Arc<ClientConfig>>) -> SendRequest<Bytes> {
    let stream = match tls {
        None => Either::Left(stream),
        Some(tls) => {
            let name = ServerName::try_from("localhost").expect("a name");
            let stream = TlsConnector::from(tls).connect(name, stream).await;
            Either::Right(stream.expect("the target speaks TLS"))
        }
    };
    let handshake = h2::client::Builder::new()
        .initial_window_size(16 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake(stream);
    let (sender, connection) = handshake.await.expect("the target speaks HTTP/2");
    tokio::task::spawn_local(async move {
        // A broken connection shows as failed calls.
        let _ = connection.await;
    });
    sender
}

/// Makes the n-th call when it is due, at the time `due_after(n)` after the start.
async fn open(stream: TcpStream, load: Load, due_after: impl Fn(u64) -> Duration + Send + 'static) -> Tally {
    let sender = start_http2(stream, load.tls.clone()).await;
    let (mut tally, head) = (Tally::new(), head());
    let mut calls = JoinSet::new();
    let mut dues = schedule(load.duration, due_after);
    let mut n = 0;
    while let Some(due) = dues.recv().await {
        let message = load.messages[n % load.messages.len()].clone();
        let (sender, head) = (sender.clone(), head.clone());
        n += 1;
        calls.spawn_local(async move { (call(sender, head, message).await, due.elapsed()) });
        while let Some(done) = calls.try_join_next() {
            let (answer, latency) = done.expect("no call panics");
            tally.record(&answer, latency);
        }
    }
    while let Some(done) = calls.join_next().await {
        let (answer, latency) = done.expect("no call panics");
        tally.record(&answer, latency);
    }
    tally
}

/// Sends the due time of each call when it is due, for this duration. A thread does this: the timers of a runtime have
/// a resolution of 1 ms, which is more than most latencies.
fn schedule(
    duration: Duration,
    due_after: impl Fn(u64) -> Duration + Send + 'static,
) -> UnboundedReceiver<Instant> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        let started = Instant::now();
        for after in (0..).map(due_after).take_while(|after| *after < duration) {
            let due = started + after;
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                std::thread::sleep(wait);
            }
            if sender.send(due).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The head of every call.
fn head() -> http::Request<()> {
    http::Request::post(format!("http://{AUTHORITY}{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a valid request")
}

async fn call(sender: SendRequest<Bytes>, head: http::Request<()>, message: Bytes) -> Answer {
    answer(sender, head, message).await.unwrap_or(Answer::Broken)
}

async fn answer(
    sender: SendRequest<Bytes>,
    head: http::Request<()>,
    message: Bytes,
) -> Result<Answer, h2::Error> {
    let mut sender = sender.ready().await?;
    let (response, mut body) = sender.send_request(head, false)?;
    body.send_data(message, true)?;
    let response = response.await?;
    let mut received = response.into_body();
    // A gRPC error has trailers only.
    let mut answer = Answer::Error;
    while let Some(data) = received.data().await {
        let data = data?;
        if let Some(code) = overall_code(&data) {
            answer = code;
        }
        let _ = received.flow_control().release_capacity(data.len());
    }
    Ok(answer)
}

/// The decision in a message; `None` for a further piece of it.
fn overall_code(data: &[u8]) -> Option<Answer> {
    // Five bytes of gRPC frame, then field 1 (overall_code) as a varint: 08 01 = OK, 08 02 = OVER_LIMIT.
    match data.get(5..7) {
        Some([0x08, 2]) => Some(Answer::OverLimit),
        Some([0x08, _]) => Some(Answer::Ok),
        _ => None,
    }
}
