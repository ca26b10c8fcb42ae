//! `server.*`: where the process listens, how long it takes to leave, and how large a request may be.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use super::kinds::{address, count, duration, duration_or_never, positive};
use super::reader::Reader;

/// The listeners and what they accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `server.grpc.*`
    pub grpc: Grpc,
    /// `server.http.*`
    pub http: Http,
    /// `server.admin.*`
    pub admin: Admin,
    /// `server.drain`: how long the process answers on, not ready, after it is told to stop. 0 to 1 h.
    pub drain: Duration,
    /// `server.workers`: threads that decide; `None` is one per core.
    pub workers: Option<NonZeroUsize>,
    /// `server.max_descriptors`: descriptors in one request, at most.
    pub max_descriptors: NonZeroUsize,
    /// `server.max_entries`: entries in one descriptor, at most.
    pub max_entries: NonZeroUsize,
    /// `server.max_value_bytes`: bytes of one entry's key or value, or of the domain, at most.
    pub max_value_bytes: NonZeroUsize,
}

/// The gRPC listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grpc {
    /// `server.grpc.address`
    pub address: SocketAddr,
    /// `server.grpc.max_connection_age`: how long a connection may live before its client is asked to open another;
    /// `None` is for ever.
    pub max_connection_age: Option<Duration>,
}

/// The HTTP listener: `/json`, health and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// `server.http.address`
    pub address: SocketAddr,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// `server.admin.address`
    pub address: SocketAddr,
}

impl Server {
    pub(super) fn read(reader: &mut Reader) -> Self {
        Self {
            grpc: Grpc {
                address: reader.read("server.grpc.address", "0.0.0.0:8081", address()),
                max_connection_age: reader.read(
                    "server.grpc.max_connection_age",
                    "24h",
                    duration_or_never("1s", "365d"),
                ),
            },
            http: Http { address: reader.read("server.http.address", "0.0.0.0:8080", address()) },
            admin: Admin { address: reader.read("server.admin.address", "127.0.0.1:6070", address()) },
            drain: reader.read("server.drain", "5s", duration("0s", "1h")),
            workers: NonZeroUsize::new(reader.read("server.workers", "0", count(0..=1_024))),
            max_descriptors: reader.read("server.max_descriptors", "64", positive(1_024)),
            max_entries: reader.read("server.max_entries", "32", positive(256)),
            max_value_bytes: reader.read("server.max_value_bytes", "16384", positive(1_048_576)),
        }
    }
}
