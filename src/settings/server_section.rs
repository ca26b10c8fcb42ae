//! `server.*`: listening addresses, their TLS, threads, the drain, and a request's bounds.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use engine::Bounds;
use http::StatusCode;
use tls::{ClientName, ServerTls};
use url::Url;

use super::error::Fault;
use super::parsers::{
    Parser, count, duration, duration_or_never, flag, host_names, list, listen_address,
    listen_address_or_off, named, one_of, optional_path, positive, tcp_address,
};
use super::reader::Reader;
use crate::decide::{OnInvalid, Right, RightHolders};
use crate::http::{AdminAccess, TokenFile};
use crate::net::{ListenAddress, ListenOptions};

/// A request with one short descriptor has some 100 bytes.
const MIN_MESSAGE_BYTES: usize = 4 * 1024;
/// A descriptor without entries has two bytes in a message but 64 in memory, and a list grows by doubling: decoding a
/// message takes a thread up to 80 times its bytes, so at most 80 MB.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub grpc: GrpcServer,
    /// `server.http.address`: `/json`, health and metrics.
    pub http_address: ListenAddress,
    /// `server.http.usage_token_file`: the token that `/usage` needs; `None`: none.
    pub usage_token_file: Option<TokenFile>,
    /// `server.rights.*`: tokens and certificates of callers.
    pub rights: RightHolders,
    /// `server.http.check.*`; `None` without a map.
    pub check: Option<Check>,
    /// `server.http.tls.*`; `None`: clear text.
    pub http_tls: Option<ServerTls>,
    pub admin: AdminServer,
    /// `server.reuse_port`
    pub listen: ListenOptions,
    /// `server.drain`: how long the process still answers, while not ready, after a shutdown signal. 0 to 1 h.
    pub drain: Duration,
    /// `server.workers`: threads that decide; `None`: one per core.
    pub workers: Option<NonZeroUsize>,
    /// `server.max_descriptors`, `.max_entries` and `.max_value_bytes`
    pub bounds: Bounds,
    /// `server.max_message_bytes`: maximum gRPC message and maximum `/json` body.
    pub max_message_bytes: usize,
    pub on_invalid: OnInvalid,
    /// `server.max_connections_per_address`, for each port; `None`: half of the port's connections.
    pub connections_per_address: Option<NonZeroUsize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcServer {
    pub address: ListenAddress,
    /// `server.grpc.max_connection_age`: age at which the client is asked to open a new connection; `None`: never.
    pub max_connection_age: Option<Duration>,
    /// `server.grpc.fast`: `true`: served by `grpc::fast`, on h2; `false`: by tonic's server.
    pub fast: bool,
    /// `server.grpc.tls.*`; `None`: clear text.
    pub tls: Option<ServerTls>,
}

/// `/check`, which proxies call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// `server.http.check.map`: turns a request into descriptors.
    pub map: PathBuf,
    /// `server.http.check.denied_status`
    pub denied_status: StatusCode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminServer {
    /// `server.admin.address`; `None`: `off`.
    pub address: Option<ListenAddress>,
    /// `server.admin.hosts`, `.token_file`, `.operator_token_file` and `.read_by_any_host`
    pub access: AdminAccess,
    /// `server.admin.dashboard_url`: dashboard of all instances, linked in the console; empty: none.
    pub dashboard_url: String,
    /// `server.admin.tls.*`; `None`: clear text.
    pub tls: Option<ServerTls>,
}

impl Server {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let server = Self {
            grpc: GrpcServer {
                address: reader.take("server.grpc.address", "0.0.0.0:8081", listen_address()),
                max_connection_age: reader.take(
                    "server.grpc.max_connection_age",
                    "24h",
                    duration_or_never("1s", "365d"),
                ),
                fast: reader.take("server.grpc.fast", "true", flag()),
                tls: tls_from_reader(reader, "server.grpc"),
            },
            http_address: reader.take("server.http.address", "0.0.0.0:8080", tcp_address()),
            usage_token_file: reader.take("server.http.usage_token_file", "", optional_path()).map(TokenFile),
            check: check_from_reader(reader),
            http_tls: tls_from_reader(reader, "server.http"),
            rights: rights_from_reader(reader),
            admin: admin_from_reader(reader),
            listen: ListenOptions { reuse_port: reader.take("server.reuse_port", "false", flag()) },
            drain: reader.take("server.drain", "5s", duration("0s", "1h")),
            workers: NonZeroUsize::new(reader.take("server.workers", "0", count(0..=1_024))),
            bounds: Bounds {
                max_descriptors: reader.take("server.max_descriptors", "64", positive(1_024)),
                max_entries: reader.take("server.max_entries", "32", positive(256)),
                max_value_bytes: reader.take("server.max_value_bytes", "65536", positive(8_388_608)),
            },
            max_message_bytes: reader.take(
                "server.max_message_bytes",
                "262144",
                count(MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES),
            ),
            on_invalid: reader.take("server.on_invalid", "error", named()),
            connections_per_address: NonZeroUsize::new(reader.take(
                "server.max_connections_per_address",
                "0",
                count(0..=10_000),
            )),
        };
        if server.usage_token_file.is_some() && !server.rights.is_empty() {
            let reason = "does not work with server.rights: add the file to server.rights.read_token_files";
            reader.refuse("server.http.usage_token_file", Fault::Unsupported(reason));
        }
        let asks = |tls: &Option<ServerTls>| tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
        if server.rights.has_client_names() && !asks(&server.grpc.tls) && !asks(&server.http_tls) {
            let reason = "needs server.grpc.tls.client_ca_file or server.http.tls.client_ca_file: without them no client \
                          shows a certificate";
            reader.refuse("server.rights", Fault::Unsupported(reason));
        }
        server
    }
}

fn rights_from_reader(reader: &mut Reader) -> RightHolders {
    let path = |path: &str| Some(path.trim()).filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut holders = RightHolders::default();
    let RightHolders { token_files, client_names } = &mut holders;
    for (right, (files, names)) in Right::ALL.iter().zip(token_files.iter_mut().zip(client_names)) {
        let key = |kind: &str| format!("server.rights.{}_{kind}", right.into_str());
        *files = reader.take(&key("token_files"), "", list("paths of files", path));
        *names = reader.take(&key("client_san"), "", names_of_clients());
    }
    holders
}

fn check_from_reader(reader: &mut Reader) -> Option<Check> {
    let map = reader.take("server.http.check.map", "", optional_path());
    let statuses = [("429", StatusCode::TOO_MANY_REQUESTS), ("403", StatusCode::FORBIDDEN)];
    let denied_status = reader.take("server.http.check.denied_status", "429", one_of(statuses));
    Some(Check { map: map?, denied_status })
}

fn admin_from_reader(reader: &mut Reader) -> AdminServer {
    let address = reader.take("server.admin.address", "127.0.0.1:6070", listen_address_or_off());
    let access = AdminAccess {
        hosts: reader.take("server.admin.hosts", "", host_names()),
        token_file: reader.take("server.admin.token_file", "", optional_path()).map(TokenFile),
        operator_token_file: reader
            .take("server.admin.operator_token_file", "", optional_path())
            .map(TokenFile),
        read_by_any_host: reader.take("server.admin.read_by_any_host", "false", flag()),
    };
    let dashboard_url = reader.take("server.admin.dashboard_url", "", web_page());
    let tls = tls_from_reader(reader, "server.admin");
    // The mode of its file protects it.
    if tls.is_some() && matches!(address, Some(ListenAddress::Unix(_))) {
        let reason = "a Unix socket has no TLS: leave it out, or use an IP address";
        reader.refuse("server.admin.tls.cert_file", Fault::Unsupported(reason));
    }
    AdminServer { address, access, dashboard_url, tls }
}

/// Reads a port's TLS; `None` without a certificate. `section`: the port's settings.
fn tls_from_reader(reader: &mut Reader, section: &str) -> Option<ServerTls> {
    let key = |name: &str| format!("{section}.tls.{name}");
    let certificate = reader.take(&key("cert_file"), "", optional_path());
    let private_key = reader.take(&key("key_file"), "", optional_path());
    let client_ca_file = reader.take(&key("client_ca_file"), "", optional_path());
    let client_names = reader.take(&key("client_san"), "", names_of_clients());
    match (certificate, private_key) {
        (Some(cert_file), Some(key_file)) => {
            Some(ServerTls { cert_file, key_file, client_ca_file, client_names })
        }
        (None, None) => {
            if client_ca_file.is_some() {
                let reason = "needs cert_file and key_file: without them the port is clear text";
                reader.refuse(&key("client_ca_file"), Fault::Unsupported(reason));
            }
            None
        }
        (certificate, _) => {
            let reason = "cert_file and key_file belong together: set both or none";
            let written = if certificate.is_some() { "cert_file" } else { "key_file" };
            reader.refuse(&key(written), Fault::Unsupported(reason));
            None
        }
    }
}

/// Names in client certificates.
fn names_of_clients() -> Parser<Vec<ClientName>> {
    list("DNS names, IP addresses or URIs,", |name| ClientName::parse(name.trim()))
}

/// The URL of a page for browsers; empty: none.
fn web_page() -> Parser<String> {
    Parser::new("a URL that begins with https:// or http:// and contains no password, or nothing", |text| {
        let is_page = Url::parse(text).is_ok_and(|url| {
            ["http", "https"].contains(&url.scheme()) && url.username().is_empty() && url.password().is_none()
        });
        (text.is_empty() || is_page).then(|| text.to_owned())
    })
}
