//! Opens an HTTP/2 connection to an address: one attempt, within its deadline.

use std::error::Error;
use std::future::ready;
use std::io;
use std::iter::successors;
use std::time::Duration;

use base::{Watched, on_blocking_thread, readable_duration};
use http::Uri;
use hyper_util::rt::TokioIo;
use tls::{ClientConnector, ClientTls, ClientTlsError, DialError, Protocol, dial};
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::options::XdsOptions;
use crate::telemetry::metrics::XdsFailure;

const USER_AGENT: &str = concat!("ratelimitd/", env!("CARGO_PKG_VERSION"));

/// HTTP/2 PINGs also detect a dead server behind a proxy, which TCP keep-alive does not. Go servers close the
/// connections of clients that send PINGs more often than every five minutes.
const PING_EVERY: Duration = Duration::from_secs(330);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Files(#[from] ClientTlsError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("cannot open an HTTP/2 connection: {}", with_causes(.0))]
    Http2(#[from] tonic::transport::Error),
    #[error("cannot connect within {}", readable_duration(*.0))]
    Timeout(Duration),
}

/// Formats an error with its causes: tonic's errors do not show the alert from a server that refuses a certificate.
pub(super) fn with_causes(error: &dyn Error) -> String {
    let texts = successors(Some(error), |&error| error.source()).map(ToString::to_string);
    texts.collect::<Vec<_>>().join(": ")
}

impl ConnectError {
    pub fn failure(&self) -> XdsFailure {
        match self {
            Self::Dial(DialError::Resolve(_)) => XdsFailure::Resolve,
            Self::Dial(DialError::Connect(_)) | Self::Http2(_) => XdsFailure::Connect,
            Self::Files(_) | Self::Dial(DialError::Tls(_)) => XdsFailure::Tls,
            Self::Timeout(_) | Self::Dial(DialError::Timeout) => XdsFailure::Timeout,
        }
    }
}

/// Reads a connection's files, and returns them to be watched.
pub(super) async fn load(tls: &ClientTls) -> (Watched<ClientTls>, Result<ClientConnector, ClientTlsError>) {
    let tls = tls.clone();
    on_blocking_thread(move || Watched::start(tls, |tls| tls.read_files(Some(Protocol::Http2)))).await
}

/// Connects to the server, with TLS if there is a connector.
pub(super) async fn connect(
    options: &XdsOptions,
    tls: Option<&ClientConnector>,
) -> Result<Channel, ConnectError> {
    let within = options.connect_timeout;
    let attempt = tokio::time::timeout(within, connect_now(options, tls)).await;
    attempt.unwrap_or(Err(ConnectError::Timeout(within)))
}

async fn connect_now(options: &XdsOptions, tls: Option<&ClientConnector>) -> Result<Channel, ConnectError> {
    let address = &options.address;
    let stream = dial(&address.host.to_str(), address.port, tls).await?;
    // A channel would reconnect by itself. Each connection must have one stream, and `client` waits between them.
    let mut once = Some(TokioIo::new(stream));
    let connector = service_fn(move |_: Uri| {
        ready(once.take().ok_or_else(|| io::Error::other("the server has closed the connection")))
    });
    Ok(endpoint(options)?.connect_with_connector(connector).await?)
}

fn endpoint(options: &XdsOptions) -> Result<Endpoint, tonic::transport::Error> {
    // For a server with several names, sends the one that its certificate must have.
    let authority = match options.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
        Some(ServerName::DnsName(name)) => name.as_ref().to_owned(),
        _ => options.address.authority(),
    };
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let origin: Uri = format!("{scheme}://{authority}").parse().unwrap_or_default();
    // Without the endpoint's scheme: TLS would be tonic's.
    let endpoint = Endpoint::from_shared(format!("http://{}", options.address.authority()))?
        .origin(origin)
        .user_agent(USER_AGENT)?
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    Ok(endpoint)
}
