//! From an address to an HTTP/2 connection: DNS, TCP, TLS. One attempt, within its deadline.

use std::future::ready;
use std::io;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use tls::{NotedAlert, NotesAlert};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::noted_end::{NotedEnd, NotesEnd};
use super::options::XdsOptions;
use crate::telemetry::metrics::XdsFailure;

const USER_AGENT: &str = concat!("ratelimitd/", env!("CARGO_PKG_VERSION"));

/// When TCP asks whether an idle server is still there, how often, and how many questions may stay unanswered.
const TCP_IDLE: Duration = Duration::from_secs(30);
const TCP_INTERVAL: Duration = Duration::from_secs(10);
const TCP_QUESTIONS: u32 = 3;
/// Pings of HTTP/2 also find a server behind a proxy. Servers in Go close the connections of clients that send pings
/// more often than every five minutes.
const PING_EVERY: Duration = Duration::from_secs(330);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("its name cannot be resolved: {0}")]
    Resolve(#[source] io::Error),
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
    #[error("no HTTP/2 connection: {0}")]
    Http2(#[from] tonic::transport::Error),
    #[error("no connection within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
}

impl ConnectError {
    pub fn failure(&self) -> XdsFailure {
        match self {
            Self::Resolve(_) => XdsFailure::Resolve,
            Self::Connect(_) | Self::Http2(_) => XdsFailure::Connect,
            Self::Tls(_) => XdsFailure::Tls,
            Self::Timeout(_) => XdsFailure::Timeout,
        }
    }
}

/// What is known of the end of a connection besides the error of its stream.
#[derive(Clone, Debug, Default)]
pub(super) struct NotedFarewell {
    /// The server's refusal in TLS.
    pub alert: NotedAlert,
    pub end: NotedEnd,
}

impl NotedFarewell {
    /// A failure and its reason, with what is known of the end of the connection.
    pub fn explain(&self, (failure, reason): (XdsFailure, String), has_tls: bool) -> (XdsFailure, String) {
        if let Some(alert) = self.alert.get() {
            return (XdsFailure::Tls, format!("the server refuses this client's TLS connection: {alert}"));
        }
        let farewell = self.end.farewell().map(|farewell| format!("; {farewell}"));
        // In TLS 1.3 the client is done before the server has seen its certificate. Servers on gRPC's C++ library end
        // the connection without an alert then.
        let hint = if has_tls && self.end.is_silent() {
            "; the server sent nothing after the TLS handshake, as one that does not accept this client's certificate"
        } else {
            ""
        };
        (failure, format!("{reason}{}{hint}", farewell.unwrap_or_default()))
    }
}

/// Connects to the server, by TLS if there is a connector. How the connection ends goes to `noted`.
pub(super) async fn connect(
    options: &XdsOptions,
    tls: Option<&TlsConnector>,
    noted: &NotedFarewell,
) -> Result<Channel, ConnectError> {
    let within = options.connect_timeout;
    let attempt = tokio::time::timeout(within, connect_now(options, tls, noted)).await;
    attempt.unwrap_or(Err(ConnectError::Timeout(within)))
}

async fn connect_now(
    options: &XdsOptions,
    tls: Option<&TlsConnector>,
    noted: &NotedFarewell,
) -> Result<Channel, ConnectError> {
    let stream = dial(options).await?;
    let name = server_name(options);
    let stream: Box<dyn ByteStream> = match tls {
        None => Box::new(stream),
        Some(tls) => {
            let stream = tls.connect(name.clone(), stream).await.map_err(ConnectError::Tls)?;
            Box::new(NotesAlert::new(stream, noted.alert.clone()))
        }
    };
    // A channel would connect again by itself. Here each connection has a stream, and `client` waits between them.
    let mut once = Some(TokioIo::new(NotesEnd::new(stream, noted.end.clone())));
    let end = noted.end.clone();
    let connector = service_fn(move |_: Uri| {
        ready(once.take().ok_or_else(|| {
            let reason = end.reason().unwrap_or_else(|| "closed by HTTP/2".to_owned());
            io::Error::other(format!("the connection has ended: {reason}"))
        }))
    });
    Ok(endpoint(options)?.connect_with_connector(connector).await?)
}

/// The name that the server's certificate must have.
fn server_name(options: &XdsOptions) -> &ServerName<'static> {
    let given = options.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
    given.unwrap_or(&options.address.host)
}

fn endpoint(options: &XdsOptions) -> Result<Endpoint, tonic::transport::Error> {
    // A server that has several names is asked under the one that it must prove.
    let authority = match options.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
        Some(ServerName::DnsName(name)) => name.as_ref().to_owned(),
        _ => options.address.authority(),
    };
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let origin: Uri = format!("{scheme}://{authority}").parse().unwrap_or_default();
    // The scheme of the endpoint is not sent: its TLS would be tonic's.
    let endpoint = Endpoint::from_shared(format!("http://{}", options.address.authority()))?
        .origin(origin)
        .user_agent(USER_AGENT)?
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    Ok(endpoint)
}

/// Tries the addresses of the host in turn.
async fn dial(options: &XdsOptions) -> Result<TcpStream, ConnectError> {
    let address = &options.address;
    let host = address.host.to_str();
    let addresses = lookup_host((&*host, address.port)).await.map_err(ConnectError::Resolve)?;
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return set_options(stream).map_err(ConnectError::Connect),
            Err(error) => failed = error,
        }
    }
    Err(ConnectError::Connect(failed))
}

fn set_options(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, TCP_IDLE)?;
    sockopt::set_tcp_keepintvl(&stream, TCP_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, TCP_QUESTIONS)?;
    Ok(stream)
}

/// Clear text or TLS.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}
