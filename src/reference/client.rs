//! `ratelimit_client`: sends one request and prints the answer.

use std::error::Error as _;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use engine::Entry;
use http::Uri;
use tls::Protocol;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tower::service_fn;

use super::flags::{Flag, Flags, Stop};
use super::text_format::answer_text;
use crate::cli::client::{block_on, root_cause};
use crate::cli::output::{end, print, report};
pub(crate) use crate::cli::service_connection::{ServiceConnector, TlsArgs, TlsSetupError};
use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor as wire;
use crate::grpc::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use crate::grpc::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

const PROGRAM: &str = "ratelimit_client";
const DEADLINE: Duration = Duration::from_secs(10);

/// In the order in which they are printed.
const FLAGS: [Flag; 8] = [
    Flag {
        name: "descriptors",
        is_switch: false,
        usage: "one descriptor as key=value[,key=value...]; may be repeated",
    },
    Flag {
        name: "dial_string",
        is_switch: false,
        usage: "host:port of the service (default localhost:8081)",
    },
    Flag { name: "domain", is_switch: false, usage: "the domain of the request" },
    Flag { name: "grpc-cert-file", is_switch: false, usage: "the certificate of this client (PEM)" },
    Flag { name: "grpc-key-file", is_switch: false, usage: "its key (PEM)" },
    Flag { name: "grpc-server-ca-file", is_switch: false, usage: "the authorities to trust (PEM)" },
    Flag { name: "grpc-use-tls", is_switch: true, usage: "connect with TLS" },
    Flag { name: "oltp-protocol", is_switch: false, usage: "http, grpc or nothing; no traces are sent" },
];

/// Exit code 0: there was an answer, whatever it says. 1: there was none. 2: the command line cannot be used.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let flags = match Flags::parse(PROGRAM, &FLAGS, words) {
        Ok(flags) => flags,
        Err(stop) => return stop.report(),
    };
    let descriptors: Result<Vec<_>, Stop> =
        flags.all("descriptors").iter().map(|text| descriptor(text)).collect();
    let descriptors = match descriptors {
        Ok(descriptors) => descriptors,
        Err(stop) => return stop.report(),
    };
    let mut printed = print(&flag_lines(&flags, &descriptors));
    if let Some(protocol) = unknown_protocol(&flags) {
        printed = printed.and_then(|()| print(&format!("Invalid otlptrace client protocol: {protocol}\n")));
        report(format_args!("{PROGRAM}: -oltp-protocol: expected http, grpc or nothing, found {protocol:?}"));
        return end(printed, ExitCode::from(2));
    }
    let address = flags.text("dial_string", "localhost:8081");
    let connection = match connection(&flags, address) {
        Ok(connection) => connection,
        Err(error) => {
            report(format_args!("{PROGRAM}: {error}"));
            return end(printed, ExitCode::from(error.code()));
        }
    };
    let request = RateLimitRequest {
        domain: flags.text("domain", "").as_bytes().to_owned(),
        descriptors: descriptors.into_iter().map(message).collect(),
        hits_addend: 1,
    };
    let (line, code) = match block_on(ask_service(connection, request)) {
        Ok(Ok(answer)) => (format!("response: {}\n", answer_text(&answer)), ExitCode::SUCCESS),
        Ok(Err(status)) => (format!("request error: {}\n", error_text(&status)), ExitCode::FAILURE),
        Err(error) => (format!("request error: {error}\n"), ExitCode::FAILURE),
    };
    end(printed.and_then(|()| print(&line)), code)
}

fn unknown_protocol(flags: &Flags) -> Option<&str> {
    Some(flags.text("oltp-protocol", "")).filter(|protocol| !["", "http", "grpc"].contains(protocol))
}

/// Each entry has exactly one `=`.
fn descriptor(text: &str) -> Result<Vec<Entry>, Stop> {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').filter(|(_, value)| !value.contains('='))?;
        Some(Entry { key: key.to_owned(), value: value.to_owned() })
    };
    let entries: Option<Vec<Entry>> = text.split(',').map(entry).collect();
    let refuse = || Stop::invalid(PROGRAM, &FLAGS, "descriptors", text, "expected key=value[,key=value...]");
    entries.ok_or_else(refuse)
}

fn message(entries: Vec<Entry>) -> RateLimitDescriptor {
    let entries = entries.into_iter().map(wire::Entry::from).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

fn flag_lines(flags: &Flags, descriptors: &[Vec<Entry>]) -> String {
    let mut lines = String::new();
    for Flag { name, is_switch, .. } in FLAGS {
        let value = match name {
            "descriptors" => descriptors.iter().map(|entries| shown(entries)).collect(),
            "dial_string" => flags.text(name, "localhost:8081").to_owned(),
            _ => flags.text(name, if is_switch { "false" } else { "" }).to_owned(),
        };
        let _ = writeln!(lines, "Flag: --{name}=\"{value}\"");
    }
    lines
}

fn shown(entries: &[Entry]) -> String {
    let entry = |entry: &Entry| format!("<key={}, value={}> ", entry.key, entry.value);
    format!("[ {}] ", entries.iter().map(entry).collect::<Vec<_>>().join(" "))
}

/// Where and how to connect.
struct Connection {
    endpoint: Endpoint,
    connector: ServiceConnector,
}

/// Why no connection can be tried.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("-dial_string: {0}")]
    Address(#[from] http::uri::InvalidUri),
    #[error("{0}")]
    Tls(#[from] TlsSetupError),
}

impl ConnectionError {
    /// A file that cannot be used has a code of its own.
    fn code(&self) -> u8 {
        match self {
            Self::Address(_) | Self::Tls(TlsSetupError::System(_)) => 1,
            Self::Tls(_) => 2,
        }
    }
}

fn connection(flags: &Flags, address: &str) -> Result<Connection, ConnectionError> {
    let is_tls = flags.switch("grpc-use-tls");
    let address: Uri = format!("{}://{address}/", if is_tls { "https" } else { "http" }).parse()?;
    let file = |name| Some(PathBuf::from(flags.text(name, ""))).filter(|path| !path.as_os_str().is_empty());
    // Without TLS the files are not looked at, as there.
    let tls = if is_tls {
        TlsArgs {
            ca_file: file("grpc-server-ca-file"),
            cert_file: file("grpc-cert-file"),
            key_file: file("grpc-key-file"),
            server_name: None,
        }
    } else {
        TlsArgs::default()
    };
    let connector = tls.connector(&address, Protocol::Http2)?;
    let endpoint = Endpoint::from(address).connect_timeout(DEADLINE).timeout(DEADLINE);
    Ok(Connection { endpoint, connector })
}

async fn ask_service(connection: Connection, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let Connection { endpoint, connector } = connection;
    let connect = service_fn(move |uri: Uri| connector.clone().connect(uri));
    let channel = endpoint.connect_with_connector(connect).await;
    let channel = channel.map_err(|error| Status::unavailable(root_cause(&error)))?;
    let mut client = RateLimitServiceClient::new(channel);
    let answer = client.should_rate_limit(request).await.map(tonic::Response::into_inner);
    // A status with a cause is not the service's: the connection ended, as it does in TLS 1.3 when a certificate of
    // the client is missing or refused.
    answer.map_err(|status| match status.source() {
        Some(cause) => Status::unavailable(root_cause(cause)),
        None => status,
    })
}

/// As Go's library prints a status.
fn error_text(status: &Status) -> String {
    let code = match status.code() {
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}
