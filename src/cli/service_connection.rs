//! How the sub-commands reach a running service: addresses, connections (clear text for `http://`, TLS for `https://`,
//! or a Unix socket), and HTTP calls.

use std::error::Error;
use std::future::Future;
use std::path::PathBuf;
use std::{io, iter};

use clap::Args;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tls::{ByteStream, ClientConnector, ClientTls, ClientTlsError, Protocol, ServerCheck, dial, dial_unix};
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::ServerName;

/// Far above the answer about one request's counters, and the console's state.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Help heading of the options for reaching a service.
pub const CONNECTION: &str = "Connection options";

/// How an `https://` address is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct TlsArgs {
    /// For https: trust the CAs in this PEM file instead of the system's
    #[arg(long, help_heading = CONNECTION, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// For https: present this client certificate (PEM)
    #[arg(long, help_heading = CONNECTION, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,

    /// For https: use this private key for --cert-file (PEM)
    #[arg(long, help_heading = CONNECTION, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,

    /// For https: expect this name in the service's certificate instead of the host of the address
    #[arg(long, help_heading = CONNECTION, value_name = "NAME")]
    pub server_name: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    #[error("{0}; name a file with --ca-file")]
    System(ClientTlsError),
    #[error("{0}")]
    Client(ClientTlsError),
    #[error("--server-name {0}: not a host name or an address")]
    ServerName(String),
    #[error("--ca-file, --cert-file, --key-file and --server-name need an address that begins with https://")]
    ClearText,
}

#[derive(Clone)]
pub enum ServiceConnector {
    /// With TLS if there is a connector.
    Host(Option<ClientConnector>),
    Unix(PathBuf),
}

impl From<ClientTlsError> for TlsSetupError {
    fn from(error: ClientTlsError) -> Self {
        match error {
            ClientTlsError::System(_) => Self::System(error),
            error => Self::Client(error),
        }
    }
}

/// Parses a service's address: `host:port`, `http://host:port`, or `https://host:port` for TLS.
///
/// # Errors
/// A sentence for the user, for any other scheme and for a string without a host.
pub fn parse_http_url(text: &str) -> Result<Uri, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}/") };
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("expected host:port, http://host:port or https://host:port".to_owned()),
    }
}

impl TlsArgs {
    /// Returns the connector of `address`, whose connections speak `protocol`.
    ///
    /// # Errors
    /// If a file is invalid, or the options do not fit the address.
    pub fn connector(
        &self,
        address: &Uri,
        protocol: Protocol,
        check: ServerCheck,
    ) -> Result<ServiceConnector, TlsSetupError> {
        if address.scheme_str() != Some("https") {
            let is_default = *self == Self::default();
            return if is_default { Ok(ServiceConnector::Host(None)) } else { Err(TlsSetupError::ClearText) };
        }
        let name = |name: &String| {
            ServerName::try_from(name.clone()).map_err(|_| TlsSetupError::ServerName(name.clone()))
        };
        let tls = ClientTls {
            ca_file: self.ca_file.clone(),
            trust_system: false,
            identity: self.cert_file.clone().zip(self.key_file.clone()),
            server_name: self.server_name.as_ref().map(name).transpose()?,
            check,
        };
        Ok(ServiceConnector::Host(Some(tls.read_files(Some(protocol))?)))
    }
}

impl ServiceConnector {
    /// Connects to the host of `address`, or to the socket. Does not set a deadline.
    pub async fn connect(self, address: Uri) -> io::Result<TokioIo<Box<dyn ByteStream>>> {
        let stream = match self {
            Self::Unix(path) => dial_unix(&path).await?,
            Self::Host(tls) => {
                let host = address.host().unwrap_or_default();
                let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
                let port = address.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
                dial(host, port, tls.as_ref()).await.map_err(io::Error::other)?
            }
        };
        Ok(TokioIo::new(stream))
    }
}

/// The URL of a path on a server.
pub fn with_path(server: Uri, path: &'static str) -> Uri {
    let mut parts = server.into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(path));
    Uri::from_parts(parts).expect("only the path was replaced")
}

#[derive(Debug, thiserror::Error)]
pub enum HttpCallError {
    #[error(transparent)]
    Connect(io::Error),
    #[error(transparent)]
    Http(hyper::Error),
    /// The answer's body cannot be read to its end.
    #[error(transparent)]
    Body(Box<dyn Error + Send + Sync>),
}

/// An answer with an unread body.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: StatusCode,
    pub body: Incoming,
    /// Moves the connection's bytes; ends with the answer.
    _connection: JoinSet<hyper::Result<()>>,
}

/// Sends a request on its own connection. Does not set a deadline.
///
/// # Errors
/// [`HttpCallError`] if there is no HTTP answer.
pub async fn call_http(
    connector: ServiceConnector,
    mut request: Request<Full<Bytes>>,
) -> Result<HttpAnswer, HttpCallError> {
    let address = request.uri().clone();
    let stream = connector.connect(address.clone()).await.map_err(HttpCallError::Connect)?;
    let (mut sender, connection) = http1::handshake(stream).await.map_err(HttpCallError::Http)?;
    let mut moving = JoinSet::new();
    moving.spawn(connection);
    let host = address.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    request.headers_mut().extend(host.map(|host| (header::HOST, host)));
    *request.uri_mut() = address.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    let (head, body) = sender.send_request(request).await.map_err(HttpCallError::Http)?.into_parts();
    Ok(HttpAnswer { status: head.status, body, _connection: moving })
}

impl HttpAnswer {
    /// Reads the whole body. Does not set a deadline.
    ///
    /// # Errors
    /// [`HttpCallError::Body`] if the connection breaks, or the body is too long.
    pub async fn text(self) -> Result<String, HttpCallError> {
        let body = Limited::new(self.body, MAX_ANSWER_BYTES).collect().await;
        Ok(String::from_utf8_lossy(&body.map_err(HttpCallError::Body)?.to_bytes()).into_owned())
    }
}

/// Runs a client on this thread.
pub fn block_on<T>(client: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(client))
}

/// Returns the innermost cause of an error: `transport error` alone does not help.
pub fn root_cause(error: &dyn Error) -> String {
    let causes = iter::successors(Some(error), |error| (*error).source());
    causes.last().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_and_https_are_accepted() {
        let cases = [
            // (written, authority)
            ("localhost:6070", Ok("localhost:6070")),
            ("127.0.0.1:8081", Ok("127.0.0.1:8081")),
            ("http://[::1]:6070", Ok("[::1]:6070")),
            ("http://ratelimit", Ok("ratelimit")),
            ("https://localhost:8081", Ok("localhost:8081")),
            ("ftp://localhost", Err("expected host:port")),
            ("", Err("")),
        ];
        for (written, expected) in cases {
            let parsed = parse_http_url(written);
            match (&parsed, expected) {
                (Ok(uri), Ok(authority)) => {
                    assert_eq!(uri.authority().map(|authority| authority.as_str()), Some(authority));
                }
                (Err(error), Err(start)) => assert!(error.starts_with(start), "{error}"),
                _ => panic!("{written}: {parsed:?}"),
            }
        }
    }
}
