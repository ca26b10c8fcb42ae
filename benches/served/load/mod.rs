//! The load: a closed loop over HTTP/2 with a fixed number of calls in flight, or an open loop with a fixed rate, of
//! single calls or of bursts.
//!
//! The generator shares the cores with the measured processes, so it costs little: it sends messages that were encoded
//! beforehand, and writes the frames itself. In the open loop one thread starts the calls of all connections by one
//! schedule, each on the next connection, and the latency of a call counts from the time when it was due, not from the
//! time when it was sent. The thread sleeps until the next call is due by a timer with the resolution of the kernel's
//! clock; the tally says how late the calls were started, and how many together.

mod http2;
mod tally;
mod worker;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_rustls::rustls::ClientConfig;

pub use tally::Tally;
use worker::Worker;

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

impl Pace {
    /// When the n-th call of all is due, after the start; `None` in a closed loop.
    fn due_after(self, n: u64) -> Option<Duration> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { per_second } => {
                let (seconds, rest) = (n / per_second, n % per_second);
                Some(Duration::from_secs(seconds) + Duration::from_nanos(rest * 1_000_000_000 / per_second))
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

/// One run of the generator: targets, rate and duration.
#[derive(Clone, Debug)]
pub struct Load {
    /// The connections go to each of these in turn.
    pub targets: Vec<SocketAddr>,
    /// Connections to all targets together.
    pub connections: usize,
    pub pace: Pace,
    pub duration: Duration,
    /// gRPC frames, sent in turn.
    pub messages: Arc<Vec<Bytes>>,
    /// For connections by TLS, to a server of the name `localhost`.
    pub tls: Option<Arc<ClientConfig>>,
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
