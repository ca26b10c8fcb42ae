//! How a connection comes to be: an address, then TCP or a Unix socket, TLS where it is asked for,
//! and who we are. Knows nothing of what is sent.
//!
//! RESP2 is spoken: the script answers with flat lists of integers, which RESP3 writes the same way.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::names::Name;
use super::options::OptionsError;
use super::pool::store_error;
use super::tls::Tls;
use crate::engine::StoreError;

/// One of several addresses of a name that does not answer is given up after that, so that the next one has its turn.
const ONE_ADDRESS: Duration = Duration::from_millis(80);

/// Who we are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The ACL user; `None` for the one in the URL, or the default one.
    pub username: Option<String>,
    /// How it proves it.
    pub password: Password,
}

/// A password, or where it is.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Password {
    /// The one in the URL, or none.
    #[default]
    FromUrl,
    /// This one.
    Text(String),
    /// The first line of this file, read for every connection: it may change.
    File(PathBuf),
}

/// Shows where a password is, never what it is.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = match &self.password {
            Password::FromUrl => "as in the URL".to_owned(),
            Password::Text(_) => "set".to_owned(),
            Password::File(path) => format!("in {}", path.display()),
        };
        f.debug_struct("Credentials").field("username", &self.username).field("password", &password).finish()
    }
}

impl Password {
    fn read(&self) -> Result<Option<String>, OptionsError> {
        match self {
            Self::FromUrl => Ok(None),
            Self::Text(text) => Ok(Some(text.clone())),
            Self::File(path) => first_line(path).map(Some),
        }
    }

    /// Whether it can be had.
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        self.read().map(|_| ())
    }
}

fn first_line(path: &Path) -> Result<String, OptionsError> {
    let unusable = |reason: String| OptionsError::PasswordFile { path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|cause| unusable(cause.to_string()))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(unusable("its first line is empty".to_owned())),
    }
}

/// The way to one server.
#[derive(Clone)]
pub(super) struct Door {
    server: ConnectionInfo,
    is_tls: bool,
    how: Arc<How>,
    /// That of the server, where it has one.
    name: Arc<Name>,
}

/// What all servers of a store have in common.
#[derive(Default)]
pub(super) struct How {
    pub(super) credentials: Credentials,
    pub(super) tls: Option<Tls>,
}

/// A connection and the task that moves its bytes, which ends with it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) connection: MultiplexedConnection,
    driver: AbortHandle,
}

impl Wire {
    /// Whether the other end has not closed it, as far as is known here.
    pub(super) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Where it leads, without anything secret.
impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door({}, tls: {})", self.server.addr(), self.is_tls)
    }
}

/// What a URL says: the server, and whether it is spoken to by TLS.
pub(super) fn parse(url: &str) -> Result<(ConnectionInfo, bool), OptionsError> {
    let (plain, is_tls) = match url.strip_prefix("rediss://") {
        // The library knows the scheme only with its own TLS.
        Some(rest) => (format!("redis://{rest}"), true),
        None => (url.to_owned(), false),
    };
    let info = plain.as_str().into_connection_info();
    info.map(|info| (info, is_tls)).map_err(|error| OptionsError::Url(error.to_string()))
}

impl Door {
    pub(super) fn new(url: &str, how: Arc<How>) -> Result<Self, OptionsError> {
        let (server, is_tls) = parse(url)?;
        Ok(Self { server, is_tls, how, name: Arc::default() })
    }

    /// The same ways to another address.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let server = self.server.clone().set_addr(ConnectionAddr::Tcp(host.to_owned(), port));
        Self { server, name: Arc::default(), ..self.clone() }
    }

    /// A sentinel has no databases, and users of its own.
    pub(super) fn of_a_sentinel(self) -> Self {
        let server = self.server.clone().set_redis_settings(RedisConnectionInfo::default());
        Self { server, ..self }
    }

    /// Host and port; `None` of a socket, whose server is on this machine.
    pub(super) fn address(&self) -> Option<(&str, u16)> {
        match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => Some((host, *port)),
            _ => None,
        }
    }

    /// Connects and says who we are. Has no deadline of its own.
    pub(super) async fn open(&self) -> Result<Wire, StoreError> {
        let identity = self.identity()?;
        match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = tcp(&self.name, host, *port).await?;
                match self.how.tls.as_ref().filter(|_| self.is_tls) {
                    Some(tls) => speak(&identity, tls.over(stream, host).await?).await,
                    None => speak(&identity, stream).await,
                }
            }
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                speak(&identity, stream.map_err(unreachable_at(&path.display()))?).await
            }
            other => Err(StoreError::Unreachable(format!("{other}: no way to connect there is known"))),
        }
    }

    /// User, password and database.
    fn identity(&self) -> Result<RedisConnectionInfo, StoreError> {
        let credentials = &self.how.credentials;
        let mut identity = self.server.redis_settings().clone().set_skip_set_lib_name();
        if let Some(username) = &credentials.username {
            identity = identity.set_username(username);
        }
        let password = credentials.password.read();
        if let Some(password) = password.map_err(|error| StoreError::Unreachable(error.to_string()))? {
            identity = identity.set_password(password);
        }
        Ok(identity)
    }
}

async fn tcp(name: &Name, host: &str, port: u16) -> Result<TcpStream, StoreError> {
    let at = format!("{host}:{port}");
    let addresses = name.addresses(host, port).await.map_err(unreachable_at(&at))?;
    let mut addresses = addresses.into_iter().peekable();
    let mut last = StoreError::Unreachable(format!("{at}: the name has no address"));
    while let Some(address) = addresses.next() {
        let connecting = async { TcpStream::connect(address).await.map_err(unreachable_at(&at)) };
        let connected = match addresses.peek() {
            Some(_) => timeout(ONE_ADDRESS, connecting).await.unwrap_or(Err(StoreError::Timeout)),
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

pub(super) fn unreachable_at(place: &impl fmt::Display) -> impl Fn(std::io::Error) -> StoreError {
    let place = place.to_string();
    move |error| StoreError::Unreachable(format!("{place}: {error}"))
}

async fn speak<S>(identity: &RedisConnectionInfo, stream: S) -> Result<Wire, StoreError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Both time-outs are kept by the callers, who know their deadlines.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connecting = MultiplexedConnection::new_with_config(identity, stream, config);
    let (connection, driver) = connecting.await.map_err(|error| unsaid(store_error(error)))?;
    Ok(Wire { connection, driver: tokio::spawn(driver).abort_handle() })
}

/// A server that does not know AUTH repeats what came with it.
fn unsaid(failure: StoreError) -> StoreError {
    let cut = |text: String| match text.split_once(", with args") {
        Some((said, _)) => said.to_owned(),
        None => text,
    };
    match failure {
        StoreError::Refused(text) => StoreError::Refused(cut(text)),
        StoreError::Forbidden(text) => StoreError::Forbidden(cut(text)),
        StoreError::Unreachable(text) => StoreError::Unreachable(cut(text)),
        StoreError::Malformed(text) => StoreError::Malformed(cut(text)),
        other => other,
    }
}
