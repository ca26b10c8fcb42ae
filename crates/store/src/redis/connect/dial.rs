//! Opens a TCP or TLS connection and does the Redis handshake.
//!
//! Each round trip of opening a connection can take as long as a decision (`store.redis.timeout`): a server near enough
//! to decide in time is near enough to connect to. The protocol is RESP2 unless the URL has `protocol=resp3`; the
//! integer lists that the script returns are the same in RESP3.

use std::time::Duration;

use engine::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo};
use tls::{ByteStream, ClientConnector, DialTimeouts, dial_addresses};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::dns::{CachedResolver, LOOKUP_TIMEOUT};
use crate::redis::error::{dial_error, handshake_error, store_error, unreachable_at};

/// Maximum time for a round trip. A longer decision timeout allows for a slow server, not for a greater distance, and a
/// server that does not answer must still be noticed.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(1);

/// Minimum time for a step, however short the decision timeout: opening a connection is slower than using one.
const LEAST_STEP: Duration = Duration::from_millis(250);

/// Round trips of a TLS handshake before TLS 1.3; TLS 1.3 needs one.
pub(super) const TLS_ROUND_TRIPS: u32 = 2;

/// Round trips from a host name to an authenticated connection: DNS, TCP, TLS, AUTH with SELECT.
pub(super) const DIAL_ROUND_TRIPS: u32 = 3 + TLS_ROUND_TRIPS;

/// Minimum wait for one of several addresses of a name before trying the next.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(80);

/// Time limits for the steps of opening a connection. A step is a number of round trips.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTimeouts {
    round_trip: Duration,
}

impl ConnectTimeouts {
    /// `timeout` is the decision timeout.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { round_trip: timeout.min(LONGEST_ROUND_TRIP) }
    }

    /// Time for this many round trips, but at least `least`.
    pub(crate) fn at_least(self, least: Duration, round_trips: u32) -> Duration {
        least.max(self.round_trip * round_trips)
    }

    /// Time for a step of this many round trips.
    pub(super) fn step(self, round_trips: u32) -> Duration {
        self.at_least(LEAST_STEP, round_trips)
    }

    /// Waits for a step of this many round trips.
    ///
    /// # Errors
    /// The error of the step, or [`StoreError::Timeout`].
    pub(crate) async fn wait<T>(
        self,
        round_trips: u32,
        step: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(self.step(round_trips), step).await.unwrap_or(Err(StoreError::Timeout))
    }
}

/// A connection, and the task that reads and writes its bytes. The task ends with the connection.
#[derive(Debug)]
pub(crate) struct RawConnection {
    pub(crate) connection: MultiplexedConnection,
    pub(super) timeouts: ConnectTimeouts,
    driver: AbortHandle,
}

impl RawConnection {
    /// Sends a command and waits for its reply, as one step of opening the connection.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        let query = async { command.query_async(&mut self.connection).await.map_err(store_error) };
        self.timeouts.wait(1, query).await
    }

    /// `false` once the connection is known to have ended.
    pub(super) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connects to the first address of the host that answers, with TLS if there is a connector.
pub(super) async fn connect_host(
    resolver: &CachedResolver,
    host: &str,
    port: u16,
    tls: Option<&ClientConnector>,
    timeouts: ConnectTimeouts,
) -> Result<Box<dyn ByteStream>, StoreError> {
    let place = format!("{host}:{port}");
    let first_lookup = timeouts.at_least(LOOKUP_TIMEOUT, 1);
    let addresses = resolver.addresses(host, port, first_lookup).await.map_err(unreachable_at(&place))?;
    let dial_timeouts = DialTimeouts {
        address: timeouts.at_least(ADDRESS_TIMEOUT, 1),
        last_address: timeouts.step(1),
        tls: timeouts.step(TLS_ROUND_TRIPS),
    };
    let dialled = dial_addresses(host, addresses, tls, Some(dial_timeouts)).await;
    dialled.map_err(|error| dial_error(host, &place, error))
}

/// Authenticates and selects the database.
pub(super) async fn handshake(
    identity: &RedisConnectionInfo,
    stream: Box<dyn ByteStream>,
    timeouts: ConnectTimeouts,
) -> Result<RawConnection, StoreError> {
    // The callers' deadlines and the one below replace both timeouts.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connecting = MultiplexedConnection::new_with_config(identity, stream, config);
    let (connection, driver) = timeouts.wait(1, async { connecting.await.map_err(handshake_error) }).await?;
    #[expect(clippy::disallowed_methods, reason = "the connection aborts its driver when it is dropped")]
    let driver = tokio::spawn(driver).abort_handle();
    Ok(RawConnection { connection, timeouts, driver })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_timeout_of_a_decision_for_each_round_trip_between_two_bounds() {
        let ms = Duration::from_millis;
        // (decision timeout, round trips, time for them)
        let cases = [(15, 1, 250), (15, 5, 250), (100, 3, 300), (900, 2, 1_800), (10_000, 2, 2_000)];
        for (timeout, round_trips, expected) in cases {
            let step = ConnectTimeouts::new(ms(timeout)).step(round_trips);
            assert_eq!(step, ms(expected), "{timeout} ms, {round_trips} round trips");
        }
    }
}
