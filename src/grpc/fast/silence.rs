//! Handles connections without calls: PINGs find clients that are gone, and idle connections make room for new ones.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use h2::{Ping, PingPong};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use crate::grpc::tonic_server::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};
use crate::net::admission::Admitted;
use crate::net::idle::IdleConnection;

/// Silence is counted in parts of the interval, so that a call need not read the clock.
const PARTS: u32 = 3;

/// Sends the PINGs of one connection.
pub(super) struct KeepAlive {
    has_calls: Arc<AtomicBool>,
    unanswered: BoxFuture<'static, ()>,
}

impl KeepAlive {
    pub(super) fn new(ping_pong: PingPong, idle: IdleWatch) -> Self {
        let has_calls = Arc::clone(&idle.connection.has_calls);
        Self { has_calls, unanswered: Box::pin(wait_until_unanswered(ping_pong, idle)) }
    }

    pub(super) fn record_call(&self) {
        self.has_calls.store(true, Ordering::Relaxed);
    }

    /// Ready when the client has not answered a PING in time.
    pub(super) fn poll_unanswered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.unanswered.poll_unpin(cx)
    }
}

async fn wait_until_unanswered(mut ping_pong: PingPong, mut idle: IdleWatch) {
    loop {
        wait_for_silence(&mut idle).await;
        match timeout(KEEPALIVE_TIMEOUT, ping_pong.ping(Ping::opaque())).await {
            Ok(Ok(_pong)) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot send PING; closing the connection");
                return pending().await;
            }
            Err(_) => return,
        }
    }
}

async fn wait_for_silence(idle: &mut IdleWatch) {
    let part = KEEPALIVE_INTERVAL / PARTS;
    let mut parts = interval_at(Instant::now() + part, part);
    parts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent_parts = 0;
    while silent_parts < PARTS {
        parts.tick().await;
        silent_parts = if idle.end_part(part) { 0 } else { silent_parts + 1 };
    }
}

/// A connection is idle after this time without a call.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// A connection that never had a call is idle earlier: clients connect because they have one.
const UNUSED_AFTER: Duration = Duration::from_secs(30);

/// Detects whether one connection is idle, and then offers its slot to new connections.
#[derive(Debug)]
pub(super) struct IdleWatch {
    admitted: Arc<Admitted>,
    pub(super) connection: IdleConnection,
    idle_after: Duration,
    silence: Duration,
    /// Set while the connection is idle.
    idle_id: Option<u64>,
}

impl IdleWatch {
    /// `closing` is cancelled when the connection should close.
    pub(super) fn new(admitted: Arc<Admitted>, closing: CancellationToken) -> Self {
        let connection = IdleConnection { has_calls: Arc::new(AtomicBool::new(false)), closing };
        Self { admitted, connection, idle_after: UNUSED_AFTER, silence: Duration::ZERO, idle_id: None }
    }

    /// Ends a part of the interval. Returns `true` if it had a call.
    pub(super) fn end_part(&mut self, part: Duration) -> bool {
        let had_calls = self.connection.has_calls.swap(false, Ordering::Relaxed);
        if had_calls {
            (self.silence, self.idle_after) = (Duration::ZERO, IDLE_AFTER);
            // A connection stays in the list of idle connections even after it was asked to close: it gives up its slot
            // in any case.
            if !self.connection.closing.is_cancelled() {
                self.end_idleness();
            }
        } else {
            self.silence += part;
            if self.silence >= self.idle_after && self.idle_id.is_none() {
                self.idle_id = Some(self.admitted.become_idle(self.connection.clone()));
            }
        }
        had_calls
    }

    fn end_idleness(&mut self) {
        if let Some(idle_id) = self.idle_id.take() {
            self.admitted.end_idleness(idle_id);
        }
    }
}

impl Drop for IdleWatch {
    fn drop(&mut self) {
        self.end_idleness();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Admission, ConnectionBounds};
    use crate::telemetry::metrics::{Metrics, Port};

    const PLACES: usize = 32;

    fn port() -> (Admission, Metrics) {
        let metrics = Metrics::new(800_000).expect("different names");
        let bounds = ConnectionBounds { total: PLACES, per_address: PLACES };
        (Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc)), metrics)
    }

    fn connect(port: &Admission, address: u8) -> (IdleWatch, CancellationToken) {
        let place = port.admit([10, 0, 0, address].into()).expect("a place");
        let closing = CancellationToken::new();
        (IdleWatch::new(Arc::new(place), closing.clone()), closing)
    }

    fn closed(connections: &[(IdleWatch, CancellationToken)]) -> Vec<usize> {
        let closed = connections.iter().enumerate().filter(|(_, (_, closing))| closing.is_cancelled());
        closed.map(|(index, _)| index).collect()
    }

    fn end_parts(open: &mut [(IdleWatch, CancellationToken)], seconds: u64) {
        for (idle, _) in open {
            idle.end_part(Duration::from_secs(seconds));
        }
    }

    #[test]
    fn idle_connections_leave_a_sixteenth_of_the_places_free() {
        let (port, metrics) = port();
        let mut open: Vec<_> = (0..PLACES).map(|_| connect(&port, 1)).collect();
        // The first connection has a call, so it becomes idle later than the rest.
        open[0].0.connection.has_calls.store(true, Ordering::Relaxed);
        end_parts(&mut open, 29);
        assert_eq!(closed(&open), [0_usize; 0], "none is idle");
        end_parts(&mut open, 1);
        assert_eq!(closed(&open), [1, 2], "two too many");
        let text = metrics.render().expect("metrics");
        let series = r#"ratelimitd_closed_connections_total{port="grpc",reason="idle"} 2"#;
        assert!(text.contains(series), "{text}");
        assert!(port.admit([10, 0, 0, 2].into()).is_err(), "they are still open");
        open.drain(1..=2);
        // Each additional connection closes one.
        let new = connect(&port, 2);
        assert_eq!(closed(&open), [1]);
        drop((open, new));
        assert!(port.admit([10, 0, 0, 1].into()).is_ok());
    }
}
