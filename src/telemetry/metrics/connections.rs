//! Connections that the process refuses or closes, by port and reason.

use prometheus::{IntCounter, IntCounterVec, Registry, Result};

use super::family::counters;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    Grpc,
    Http,
    Admin,
    /// The port for metrics alone.
    Metrics,
}

impl Port {
    const ALL: [Self; 4] = [Self::Grpc, Self::Http, Self::Admin, Self::Metrics];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }
}

/// Why the process closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The port has as many connections as it may have.
    Full,
    /// The client's address has as many connections as it may have.
    Address,
    /// The connection was idle for the longest time, and a new one needed its place.
    Idle,
    /// The client resets calls whose answers wait for it, which takes memory.
    LeakedStreams,
    /// The gRPC worker does not take connections.
    Handoff,
    /// The system gives no connection: usually too few file descriptors.
    Accept,
}

impl CloseReason {
    pub const ALL: [Self; 6] =
        [Self::Full, Self::Address, Self::Idle, Self::LeakedStreams, Self::Handoff, Self::Accept];

    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Address => "address",
            Self::Idle => "idle",
            Self::LeakedStreams => "leaked_streams",
            Self::Handoff => "handoff",
            Self::Accept => "accept",
        }
    }
}

#[derive(Debug)]
pub(super) struct ConnectionFamilies {
    closed: IntCounterVec,
}

/// The meter of one port. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct ConnectionMeter {
    /// In the order of [`CloseReason::ALL`].
    closed: [IntCounter; CloseReason::ALL.len()],
}

impl ConnectionFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let closed = counters(
            registry,
            "ratelimitd_closed_connections_total",
            "Connections refused or closed to protect the process, by port and reason",
            &["port", "reason"],
        )?;
        let families = Self { closed };
        // Every series exists from the start, so that the first closed connection is an increase.
        for port in Port::ALL {
            families.meter(port);
        }
        Ok(families)
    }

    pub(super) fn meter(&self, port: Port) -> ConnectionMeter {
        let counter = |reason: CloseReason| self.closed.with_label_values(&[port.name(), reason.name()]);
        ConnectionMeter { closed: CloseReason::ALL.map(counter) }
    }
}

impl ConnectionMeter {
    pub fn closed(&self, reason: CloseReason) {
        self.closed[reason as usize].inc();
    }
}
