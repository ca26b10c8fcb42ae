//! Watches whether a connection is idle, and then offers its place to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::net::admission::Admitted;
use crate::net::idle::IdleConnection;

/// A connection is idle after this time without a call.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// If its client has never sent a call: clients connect because they have one.
const UNUSED_AFTER: Duration = Duration::from_secs(30);

/// Watches whether one connection is idle.
#[derive(Debug)]
pub(super) struct IdleWatch {
    place: Arc<Admitted>,
    connection: IdleConnection,
    idle_after: Duration,
    /// The time without a call.
    silence: Duration,
    /// While the connection is idle.
    ticket: Option<u64>,
}

impl IdleWatch {
    /// `closing` is cancelled when the connection is to be closed.
    pub(super) fn new(place: Arc<Admitted>, closing: CancellationToken) -> Self {
        let connection = IdleConnection { has_calls: Arc::new(AtomicBool::new(false)), closing };
        Self { place, connection, idle_after: UNUSED_AFTER, silence: Duration::ZERO, ticket: None }
    }

    /// Is to be set by each call.
    pub(super) fn has_calls(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.connection.has_calls)
    }

    /// Cancelled when the connection is to be closed.
    pub(super) fn closing(&self) -> CancellationToken {
        self.connection.closing.clone()
    }

    /// Ends a part of the time. Returns whether there was a call in it.
    pub(super) fn end_part(&mut self, part: Duration) -> bool {
        let had_calls = self.connection.has_calls.swap(false, Ordering::Relaxed);
        if had_calls {
            (self.silence, self.idle_after) = (Duration::ZERO, IDLE_AFTER);
            // A connection that is being closed gives its place all the same.
            if !self.connection.closing.is_cancelled() {
                self.end_idleness();
            }
        } else {
            self.silence += part;
            if self.silence >= self.idle_after && self.ticket.is_none() {
                self.ticket = Some(self.place.become_idle(self.connection.clone()));
            }
        }
        had_calls
    }

    fn end_idleness(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.place.end_idleness(ticket);
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
        // The first one has a call, and is idle later than the others.
        open[0].0.has_calls().store(true, Ordering::Relaxed);
        end_parts(&mut open, 29);
        assert_eq!(closed(&open), [0_usize; 0], "none is idle");
        end_parts(&mut open, 1);
        assert_eq!(closed(&open), [1, 2], "two too many");
        let text = metrics.render().expect("metrics");
        let series = r#"ratelimitd_closed_connections_total{port="grpc",reason="idle"} 2"#;
        assert!(text.contains(series), "{text}");
        assert!(port.admit([10, 0, 0, 2].into()).is_err(), "they are still open");
        open.drain(1..=2);
        // Each further connection closes one.
        let new = connect(&port, 2);
        assert_eq!(closed(&open), [1]);
        drop((open, new));
        assert!(port.admit([10, 0, 0, 1].into()).is_ok());
    }
}
