//! The address of a running service, and connections of the sub-commands to it: clear text for `http://`, TLS for
//! `https://`, or a Unix socket. Runs their clients.

use std::error::Error;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use clap::Args;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tls::{ByteStream, ClientConnector, ClientTls, ClientTlsError, Protocol, ServerCheck, dial, dial_unix};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::rustls::pki_types::ServerName;

/// How an `https://` address is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct TlsArgs {
    /// For https: the trusted certificate authorities (PEM), instead of the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// For https: the certificate to show (PEM), if the service asks for one
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,

    /// For https: the key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,

    /// For https: the name in the certificate of the service, if it is not the host of the address
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
}

/// Why TLS cannot be used.
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

/// Connects to a service.
#[derive(Clone)]
pub(crate) enum ServiceConnector {
    /// By TLS if there is a connector.
    Host(Option<ClientConnector>),
    Unix(PathBuf),
}

/// A connection for hyper's client.
pub(crate) struct ServiceConnection(Box<dyn ByteStream>);

impl From<ClientTlsError> for TlsSetupError {
    fn from(error: ClientTlsError) -> Self {
        match error {
            ClientTlsError::System(_) => Self::System(error),
            error => Self::Client(error),
        }
    }
}

/// Parses the address of a service: `host:port`, `http://host:port`, or `https://host:port` for TLS.
///
/// # Errors
/// A sentence for the user, for any other scheme and for text without a host.
pub(super) fn parse_http_url(text: &str) -> Result<Uri, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}/") };
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err("expected host:port, http://host:port or https://host:port".to_owned()),
    }
}

impl TlsArgs {
    /// The connector of `address`, whose connections speak `protocol`.
    ///
    /// # Errors
    /// When a file cannot be used, or the options do not fit the address.
    pub(crate) fn connector(
        &self,
        address: &Uri,
        protocol: Protocol,
    ) -> Result<ServiceConnector, TlsSetupError> {
        self.connector_with(address, protocol, ServerCheck::ChainAndName)
    }

    pub(crate) fn connector_with(
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
    /// Connects to the host of `address`, or to the socket. Has no deadline of its own.
    pub(crate) async fn connect(self, address: Uri) -> io::Result<TokioIo<ServiceConnection>> {
        let stream = match self {
            Self::Unix(path) => dial_unix(&path).await?,
            Self::Host(tls) => {
                let host = address.host().unwrap_or_default();
                let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
                let port = address.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
                dial(host, port, tls.as_ref()).await.map_err(io::Error::other)?
            }
        };
        Ok(TokioIo::new(ServiceConnection(stream)))
    }
}

impl Connection for ServiceConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for ServiceConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServiceConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Runs a client on this thread.
pub(super) fn block_on<T>(client: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(client))
}

/// The innermost cause of an error: `transport error` alone does not help.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
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
