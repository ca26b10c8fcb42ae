//! Opens a TCP or Unix connection, and does the Redis handshake on it. Knows nothing of what is sent afterwards.
//!
//! The protocol is RESP2 unless the URL says `protocol=resp3`: the script returns flat lists of integers, which are the
//! same in RESP3.

use std::path::Path;
use std::time::Duration;

use engine::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo};
use tls::NotedAlert;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::budget::ConnectBudget;
use super::dns::{CachedResolver, LOOKUP_TIMEOUT};
use crate::redis::error::{handshake_error, store_error, unreachable_at};

/// The least time to wait for one of several addresses of a name before the next one is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(80);

/// A connection, and the task that reads and writes its bytes. The task ends with the connection.
#[derive(Debug)]
pub(crate) struct RawConnection {
    pub(crate) connection: MultiplexedConnection,
    /// The times for opening connections to this server.
    pub(super) budget: ConnectBudget,
    driver: AbortHandle,
    refusal: TlsRefusal,
}

/// The alert with which the server may refuse our certificate. In TLS 1.3 it comes where the first reply is expected.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsRefusal {
    pub(super) host: String,
    pub(super) noted: NotedAlert,
}

impl TlsRefusal {
    /// The alert, or else `error`, which only says that the connection has ended.
    fn in_place_of(&self, error: StoreError) -> StoreError {
        match self.noted.get() {
            Some(alert) => StoreError::Tls { address: self.host.clone(), reason: alert.to_string() },
            None => error,
        }
    }
}

impl RawConnection {
    /// Sends a command and waits for its reply, as a step of opening the connection.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        let query = async { command.query_async(&mut self.connection).await.map_err(store_error) };
        self.budget.wait(1, query).await.map_err(|error| self.refusal.in_place_of(error))
    }

    /// False once the end of the connection was noticed.
    pub(super) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Tries the addresses of the host in their order.
pub(super) async fn connect_tcp(
    resolver: &CachedResolver,
    host: &str,
    port: u16,
    budget: ConnectBudget,
) -> Result<TcpStream, StoreError> {
    let place = format!("{host}:{port}");
    let first_lookup = budget.at_least(LOOKUP_TIMEOUT, 1);
    let addresses = resolver.addresses(host, port, first_lookup).await.map_err(unreachable_at(&place))?;
    let mut addresses = addresses.into_iter().peekable();
    let mut last = unreachable_at(&place)("the name has no address");
    while let Some(address) = addresses.next() {
        let connecting = async { TcpStream::connect(address).await.map_err(unreachable_at(&place)) };
        let limit = match addresses.peek() {
            Some(_) => budget.at_least(ADDRESS_TIMEOUT, 1),
            None => budget.step(1),
        };
        match timeout(limit, connecting).await.unwrap_or(Err(StoreError::Timeout)) {
            Ok(stream) => {
                // Nagle's algorithm would delay the small batches.
                stream.set_nodelay(true).map_err(unreachable_at(&place))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) async fn connect_unix(path: &Path) -> Result<UnixStream, StoreError> {
    UnixStream::connect(path).await.map_err(unreachable_at(&path.display()))
}

/// Authenticates and selects the database.
pub(super) async fn handshake<S>(
    identity: &RedisConnectionInfo,
    stream: S,
    budget: ConnectBudget,
    refusal: TlsRefusal,
) -> Result<RawConnection, StoreError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The deadlines here and of the callers replace both timeouts.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connecting = MultiplexedConnection::new_with_config(identity, stream, config);
    let connected = budget.wait(1, async { connecting.await.map_err(handshake_error) }).await;
    let (connection, driver) = connected.map_err(|error| refusal.in_place_of(error))?;
    #[expect(clippy::disallowed_methods, reason = "the connection aborts its driver when it is dropped")]
    let driver = tokio::spawn(driver).abort_handle();
    Ok(RawConnection { connection, budget, driver, refusal })
}
