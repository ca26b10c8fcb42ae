//! How a connection comes to be: an address, then TCP or a Unix socket, TLS where it is asked for,
//! and who we are. Knows nothing of what is sent.
//!
//! RESP2 is spoken: the script answers with flat lists of integers, which RESP3 writes the same way.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::dns::CachedResolver;
use super::tls::Tls;
use crate::engine::StoreError;
use crate::store::redis::error::{OptionsError, handshake_error, unreachable_at};
use crate::store::redis::options::{Credentials, Password, RedisOptions};

/// One of several addresses of a name that does not answer is given up after that, so that the next one has its turn.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(80);

/// The first line of a password file.
fn first_line(path: &Path) -> Result<String, OptionsError> {
    let unusable = |reason: String| OptionsError::PasswordFile { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|cause| unusable(cause.to_string()))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(unusable("its first line is empty".to_owned())),
    }
}

/// The password itself; `None` for the one in the URL, if any. Reads the file at every call.
fn read_password(password: &Password) -> Result<Option<String>, OptionsError> {
    match password {
        Password::FromUrl => Ok(None),
        Password::Text(text) => Ok(Some(text.clone())),
        Password::File(path) => first_line(path).map(Some),
    }
}

/// The servers at the options' URLs.
pub(crate) fn endpoints(
    options: &RedisOptions,
    credentials: &Credentials,
) -> Result<Vec<Endpoint>, OptionsError> {
    // Only a check: a password file is read again for every connection.
    read_password(&credentials.password)?;
    let uses_tls = options.urls.iter().any(|url| parse_url(url).is_ok_and(|(_, is_tls)| is_tls));
    let tls = uses_tls.then(|| Tls::new(&options.tls)).transpose()?;
    let config = Arc::new(ConnectConfig { credentials: credentials.clone(), tls });
    options.urls.iter().map(|url| Endpoint::new(url, Arc::clone(&config))).collect()
}

/// The way to one server.
#[derive(Clone)]
pub(crate) struct Endpoint {
    server: ConnectionInfo,
    is_tls: bool,
    config: Arc<ConnectConfig>,
    /// That of the server, where it has one.
    resolver: Arc<CachedResolver>,
}

/// What all servers of a store have in common.
#[derive(Default)]
pub(crate) struct ConnectConfig {
    pub(crate) credentials: Credentials,
    pub(crate) tls: Option<Tls>,
}

/// A connection and the task that moves its bytes, which ends with it.
#[derive(Debug)]
pub(crate) struct RawConnection {
    pub(crate) connection: MultiplexedConnection,
    driver: AbortHandle,
}

impl RawConnection {
    /// Whether the other end has not closed it, as far as is known here.
    pub(crate) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Where it leads, without anything secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({}, tls: {})", self.server.addr(), self.is_tls)
    }
}

/// What a URL says: the server, and whether it is spoken to by TLS.
fn parse_url(url: &str) -> Result<(ConnectionInfo, bool), OptionsError> {
    let (plain, is_tls) = match url.strip_prefix("rediss://") {
        // The library knows the scheme only with its own TLS.
        Some(rest) => (format!("redis://{rest}"), true),
        None => (url.to_owned(), false),
    };
    let info = plain.as_str().into_connection_info();
    info.map(|info| (info, is_tls)).map_err(|error| OptionsError::Url(error.to_string()))
}

impl Endpoint {
    pub(crate) fn new(url: &str, config: Arc<ConnectConfig>) -> Result<Self, OptionsError> {
        let (server, is_tls) = parse_url(url)?;
        Ok(Self { server, is_tls, config, resolver: Arc::default() })
    }

    /// The same ways to another address.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let server = self.server.clone().set_addr(ConnectionAddr::Tcp(host.to_owned(), port));
        Self { server, resolver: Arc::default(), ..self.clone() }
    }

    /// A sentinel has no databases, and users of its own.
    pub(crate) fn of_a_sentinel(self) -> Self {
        let server = self.server.clone().set_redis_settings(RedisConnectionInfo::default());
        Self { server, ..self }
    }

    /// Host and port; `None` of a socket, whose server is on this machine.
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => Some((host, *port)),
            _ => None,
        }
    }

    /// Connects and says who we are. Has no deadline of its own.
    pub(crate) async fn connect(&self) -> Result<RawConnection, StoreError> {
        let identity = self.identity()?;
        match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => {
                #[cfg(test)]
                if let Some(pipe) = crate::store::redis::testing::dial(host, *port) {
                    return handshake(&identity, pipe.map_err(unreachable_at(host))?).await;
                }
                let stream = tcp(&self.resolver, host, *port).await?;
                match self.config.tls.as_ref().filter(|_| self.is_tls) {
                    Some(tls) => handshake(&identity, tls.connect(stream, host).await?).await,
                    None => handshake(&identity, stream).await,
                }
            }
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                handshake(&identity, stream.map_err(unreachable_at(&path.display()))?).await
            }
            other => Err(StoreError::Unreachable(format!("{other}: no way to connect there is known"))),
        }
    }

    /// User, password and database.
    fn identity(&self) -> Result<RedisConnectionInfo, StoreError> {
        let credentials = &self.config.credentials;
        let mut identity = self.server.redis_settings().clone().set_skip_set_lib_name();
        if let Some(username) = &credentials.username {
            identity = identity.set_username(username);
        }
        let password = read_password(&credentials.password);
        if let Some(password) = password.map_err(|error| StoreError::Unreachable(error.to_string()))? {
            identity = identity.set_password(password);
        }
        Ok(identity)
    }
}

async fn tcp(resolver: &CachedResolver, host: &str, port: u16) -> Result<TcpStream, StoreError> {
    let at = format!("{host}:{port}");
    let addresses = resolver.addresses(host, port).await.map_err(unreachable_at(&at))?;
    let mut addresses = addresses.into_iter().peekable();
    let mut last = StoreError::Unreachable(format!("{at}: the name has no address"));
    while let Some(address) = addresses.next() {
        let connecting = async { TcpStream::connect(address).await.map_err(unreachable_at(&at)) };
        let connected = match addresses.peek() {
            Some(_) => timeout(ADDRESS_TIMEOUT, connecting).await.unwrap_or(Err(StoreError::Timeout)),
            None => connecting.await,
        };
        match connected {
            Ok(stream) => {
                // Batches are small and each waits for its answer: held back by Nagle's algorithm they would stall.
                stream.set_nodelay(true).map_err(unreachable_at(&at))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn handshake<S>(identity: &RedisConnectionInfo, stream: S) -> Result<RawConnection, StoreError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Both time-outs are kept by the callers, who know their deadlines.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connecting = MultiplexedConnection::new_with_config(identity, stream, config);
    let (connection, driver) = connecting.await.map_err(handshake_error)?;
    Ok(RawConnection { connection, driver: tokio::spawn(driver).abort_handle() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_databases_and_users_are_understood() {
        for url in
            ["redis://u:p@host:1/2", "rediss://u:p@host:1/2", "unix:///run/redis.sock?db=2&user=u&pass=p"]
        {
            let (server, is_tls) = parse_url(url).expect("a good URL");
            let settings = server.redis_settings();
            assert_eq!((settings.db(), settings.username(), settings.password()), (2, Some("u"), Some("p")));
            assert_eq!(is_tls, url.starts_with("rediss"));
        }
    }
}
