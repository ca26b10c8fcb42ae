//! `server.*`: the listening addresses, the threads, the drain, and the bounds of a request.

use std::num::NonZeroUsize;
use std::time::Duration;

use engine::wire::Bounds;
use tls::ServerTls;

use super::parsers::{
    count, duration, duration_or_never, flag, host_names, listen_address, listen_address_or_off, one_of,
    optional_path, positive, tcp_address,
};
use super::reader::Reader;
use super::server_tls::{ADMIN_TLS, GRPC_TLS, HTTP_TLS, refuse_tls_on_socket, tls_from_reader};
use crate::decide::OnInvalid;
use crate::http::{AdminAccess, TokenFile};
use crate::net::{ListenAddress, ListenOptions};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `server.grpc.*`
    pub grpc: GrpcServer,
    /// `server.http.address`: `/json`, health and metrics.
    pub http_address: ListenAddress,
    /// `server.http.tls.*`; `None` is clear text.
    pub http_tls: Option<ServerTls>,
    /// `server.admin.*`
    pub admin: AdminServer,
    /// `server.reuse_port`
    pub listen: ListenOptions,
    /// `server.drain`: how long the process answers, while not ready, after it is told to stop. 0 to 1 h.
    pub drain: Duration,
    /// `server.workers`: threads that decide; `None` is one per core.
    pub workers: Option<NonZeroUsize>,
    /// `server.max_descriptors`, `.max_entries` and `.max_value_bytes`
    pub bounds: Bounds,
    /// `server.on_invalid`
    pub on_invalid: OnInvalid,
    /// `server.max_connections_per_address`, for each port; `None` is half of the port's connections.
    pub connections_per_address: Option<NonZeroUsize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcServer {
    /// `server.grpc.address`
    pub address: ListenAddress,
    /// `server.grpc.max_connection_age`: when the client is asked to open another connection; `None` is never.
    pub max_connection_age: Option<Duration>,
    /// `server.grpc.tls.*`; `None` is clear text.
    pub tls: Option<ServerTls>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminServer {
    /// `server.admin.address`; `None` is `off`.
    pub address: Option<ListenAddress>,
    /// `server.admin.hosts`, `.token_file` and `.read_by_any_host`
    pub access: AdminAccess,
    /// `server.admin.tls.*`; `None` is clear text.
    pub tls: Option<ServerTls>,
}

impl Server {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        Self {
            grpc: GrpcServer {
                address: reader.take("server.grpc.address", "0.0.0.0:8081", listen_address()),
                max_connection_age: reader.take(
                    "server.grpc.max_connection_age",
                    "24h",
                    duration_or_never("1s", "365d"),
                ),
                tls: tls_from_reader(reader, &GRPC_TLS),
            },
            http_address: reader.take("server.http.address", "0.0.0.0:8080", tcp_address()),
            http_tls: tls_from_reader(reader, &HTTP_TLS),
            admin: admin_from_reader(reader),
            listen: ListenOptions { reuse_port: reader.take("server.reuse_port", "false", flag()) },
            drain: reader.take("server.drain", "5s", duration("0s", "1h")),
            workers: NonZeroUsize::new(reader.take("server.workers", "0", count(0..=1_024))),
            bounds: Bounds {
                max_descriptors: reader.take("server.max_descriptors", "64", positive(1_024)),
                max_entries: reader.take("server.max_entries", "32", positive(256)),
                max_value_bytes: reader.take("server.max_value_bytes", "65536", positive(8_388_608)),
            },
            on_invalid: reader.take(
                "server.on_invalid",
                "error",
                one_of([("error", OnInvalid::Error), ("deny", OnInvalid::Deny)]),
            ),
            connections_per_address: NonZeroUsize::new(reader.take(
                "server.max_connections_per_address",
                "0",
                count(0..=10_000),
            )),
        }
    }
}

fn admin_from_reader(reader: &mut Reader) -> AdminServer {
    let address = reader.take("server.admin.address", "127.0.0.1:6070", listen_address_or_off());
    let access = AdminAccess {
        hosts: reader.take("server.admin.hosts", "", host_names()),
        token_file: reader.take("server.admin.token_file", "", optional_path()).map(TokenFile),
        read_by_any_host: reader.take("server.admin.read_by_any_host", "false", flag()),
    };
    if matches!(address, Some(ListenAddress::Unix(_))) {
        refuse_tls_on_socket(reader, &ADMIN_TLS);
    }
    AdminServer { address, access, tls: tls_from_reader(reader, &ADMIN_TLS) }
}
