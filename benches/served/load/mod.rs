//! The load: a closed loop with a fixed number of calls in flight, or an open loop with a fixed rate, of single calls
//! or of bursts; by gRPC, by HTTP/1.1 with keep-alive, or by the protocol of the floor.
//!
//! The generator shares the cores with the measured processes, so it costs little: it sends messages that were encoded
//! beforehand, and writes the frames itself. In the open loop one thread starts the calls of all connections by one
//! schedule of random times, each on the next connection, and the latency of a call counts from the time when it was
//! due, not from the time when it was sent. The thread sleeps until the next call is due by a timer with the resolution
//! of the kernel's clock; the tally says how late the calls were started, and how many together.

mod http2;
mod in_order;
mod tally;
mod worker;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio_rustls::rustls::ClientConfig;

use http2::Http2;
use in_order::InOrder;
pub use tally::Tally;
use worker::Worker;

/// How calls are started.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// This number of calls is always in flight.
    Closed { in_flight: usize },
    /// This number of calls is due each second, at random times, as from callers that know nothing of each other.
    Open { per_second: u64 },
    /// This number of calls is due at once, again and again.
    Bursts { calls: u64, every: Duration },
}

impl Pace {
    /// When the calls of a second are due, in nanoseconds after its start: the same times in every second and run.
    fn times_in_a_second(self) -> Vec<u64> {
        let Self::Open { per_second } = self else { return Vec::new() };
        let mut random = fastrand::Rng::with_seed(per_second);
        let mut times: Vec<u64> = (0..per_second).map(|_| random.u64(..1_000_000_000)).collect();
        times.sort_unstable();
        times
    }

    /// When the n-th call of all is due, after the start; `None` in a closed loop. `times`: of
    /// [`Self::times_in_a_second`].
    fn due_after(self, n: u64, times: &[u64]) -> Option<Duration> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { per_second } => {
                let place = usize::try_from(n % per_second).expect("the place of a call");
                Some(Duration::from_secs(n / per_second) + Duration::from_nanos(times[place]))
            }
            Self::Bursts { calls, every } => Some(every * u32::try_from(n / calls).expect("a run of days")),
        }
    }
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

/// What the connections speak.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// Calls of gRPC, over HTTP/2.
    Grpc,
    /// Requests of HTTP/1.1.
    Http1,
    /// Requests to the floor.
    Floor,
}

/// One run of the generator: targets, rate and duration.
#[derive(Clone, Debug)]
pub struct Load {
    /// The connections go to each of these in turn.
    pub targets: Vec<SocketAddr>,
    /// Connections to all targets together.
    pub connections: usize,
    pub pace: Pace,
    pub duration: Duration,
    pub protocol: Protocol,
    /// gRPC frames, or whole requests of another protocol, sent in turn.
    pub messages: Arc<Vec<Bytes>>,
    /// For connections by TLS, to a server of the name `localhost`.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Load {
    fn connection(&self) -> Box<dyn Connection + '_> {
        match self.protocol {
            Protocol::Grpc => Box::new(Http2::new(&self.messages)),
            Protocol::Http1 => Box::new(InOrder::http1(&self.messages)),
            Protocol::Floor => Box::new(InOrder::floor(&self.messages)),
        }
    }
}

/// The client's side of one connection, without its socket: calls become bytes to send, received bytes become answers.
trait Connection {
    /// Bytes that the next write sends.
    fn out(&mut self) -> &mut Vec<u8>;

    /// Whether calls can start.
    fn is_ready(&self) -> bool;

    /// Whether no call waits for an answer or for its start.
    fn is_idle(&self) -> bool;

    /// Keeps `calls` calls in flight until this time. They begin at different places among the messages.
    ///
    /// # Panics
    /// If the connection does not admit them.
    fn keep_in_flight(&mut self, calls: usize, first_turn: usize, until: Instant);

    /// Starts a call with the message of this turn, whose latency counts from `due`.
    fn start(&mut self, turn: usize, due: Instant, tally: &mut Tally);

    /// Reads what is complete of the bytes, which arrived at this time, and counts the answers.
    ///
    /// # Panics
    /// If the server breaks the protocol.
    fn receive(&mut self, input: &mut BytesMut, now: Instant, tally: &mut Tally);

    /// The connection has ended: the calls on it have no answer.
    fn break_off(&mut self, tally: &mut Tally);
}

/// Sends the load: a closed loop from one thread per connection, but at most two; a schedule from one thread.
pub fn generate(load: &Load) -> Tally {
    let threads = match load.pace {
        Pace::Closed { .. } => load.connections.min(2),
        Pace::Open { .. } | Pace::Bursts { .. } => 1,
    };
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let load = load.clone();
            std::thread::spawn(move || {
                Worker::connect(&load, (thread..load.connections).step_by(threads)).run()
            })
        })
        .collect();
    let mut tally = Tally::new();
    for worker in workers {
        tally.add(&worker.join().expect("no worker panics"));
    }
    tally
}
