//! Opens a TCP or TLS connection, and does the Redis handshake on it. Knows nothing of what is sent afterwards.
//!
//! The protocol is RESP2 unless the URL says `protocol=resp3`: the script returns flat lists of integers, which are the
//! same in RESP3.

use std::time::Duration;

use engine::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo};
use tls::{ByteStream, ClientConnector, DialTimeouts, dial_addresses};
use tokio::task::AbortHandle;

use super::budget::{ConnectBudget, TLS_ROUND_TRIPS};
use super::dns::{CachedResolver, LOOKUP_TIMEOUT};
use crate::redis::error::{dial_error, handshake_error, store_error, unreachable_at};

/// The least time to wait for one of several addresses of a name before the next one is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(80);

/// A connection, and the task that reads and writes its bytes. The task ends with the connection.
#[derive(Debug)]
pub(crate) struct RawConnection {
    pub(crate) connection: MultiplexedConnection,
    /// The times for opening connections to this server.
    pub(super) budget: ConnectBudget,
    driver: AbortHandle,
}

impl RawConnection {
    /// Sends a command and waits for its reply, as a step of opening the connection.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        let query = async { command.query_async(&mut self.connection).await.map_err(store_error) };
        self.budget.wait(1, query).await
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

/// Connects to the first address of the host that answers, by TLS if there is a connector.
pub(super) async fn connect_host(
    resolver: &CachedResolver,
    host: &str,
    port: u16,
    tls: Option<&ClientConnector>,
    budget: ConnectBudget,
) -> Result<Box<dyn ByteStream>, StoreError> {
    let place = format!("{host}:{port}");
    let first_lookup = budget.at_least(LOOKUP_TIMEOUT, 1);
    let addresses = resolver.addresses(host, port, first_lookup).await.map_err(unreachable_at(&place))?;
    let timeouts = DialTimeouts {
        address: budget.at_least(ADDRESS_TIMEOUT, 1),
        last_address: budget.step(1),
        tls: budget.step(TLS_ROUND_TRIPS),
    };
    let dialled = dial_addresses(host, addresses, tls, Some(timeouts)).await;
    dialled.map_err(|error| dial_error(host, &place, error))
}

/// Authenticates and selects the database.
pub(super) async fn handshake(
    identity: &RedisConnectionInfo,
    stream: Box<dyn ByteStream>,
    budget: ConnectBudget,
) -> Result<RawConnection, StoreError> {
    // The deadlines here and of the callers replace both timeouts.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connecting = MultiplexedConnection::new_with_config(identity, stream, config);
    let (connection, driver) = budget.wait(1, async { connecting.await.map_err(handshake_error) }).await?;
    #[expect(clippy::disallowed_methods, reason = "the connection aborts its driver when it is dropped")]
    let driver = tokio::spawn(driver).abort_handle();
    Ok(RawConnection { connection, budget, driver })
}
