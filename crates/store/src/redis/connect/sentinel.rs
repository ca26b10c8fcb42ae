//! Finds the primary (`master` in the Sentinel protocol and in the settings). Each new connection asks a sentinel, and
//! then the server itself (`ROLE`).
//!
//! That suffices if a failover breaks the connections to the old primary, or turns it into a replica. After a planned
//! failover or a network partition the old primary may answer as before, so `watch` polls the sentinels.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engine::StoreError;
use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::Value;
use tokio::time::{sleep, timeout};

use super::dial::{ConnectTimeouts, DIAL_ROUND_TRIPS, RawConnection};
use super::dns::LOOKUP_TIMEOUT;
use super::endpoint::Endpoint;
use crate::redis::address::Address;

/// Minimum time for one sentinel. Longer than a DNS lookup: after a slow lookup the last known address is used.
const SENTINEL_TIMEOUT: Duration = LOOKUP_TIMEOUT.saturating_add(Duration::from_millis(40));

/// Minimum time for the reported primary to accept a connection before the next sentinel is asked, which may report a
/// different server.
const PRIMARY_TIMEOUT: Duration = Duration::from_millis(150);

/// Round trips to connect to a sentinel and query it.
pub(super) const SENTINEL_ROUND_TRIPS: u32 = DIAL_ROUND_TRIPS + 1;

/// Round trips to connect to the primary and query its role.
pub(super) const PRIMARY_ROUND_TRIPS: u32 = DIAL_ROUND_TRIPS + 1;

/// Pause between two polls of the sentinels, milliseconds. Random, so that workers do not poll in step.
const POLL_PAUSE_MS: RangeInclusive<u64> = 400..=800;

#[derive(Debug)]
pub(crate) struct Sentinels {
    endpoints: Vec<Endpoint>,
    /// Name of the primary in the sentinels' configuration.
    master_name: String,
    /// How to connect to the servers; its address is unused.
    server: Endpoint,
    /// Index of the sentinel to ask first: the last one that answered, or the one after the last that did not.
    first: AtomicUsize,
    /// The primary of the last connection; `None` before the first connection, and after the sentinels reported another
    /// primary.
    primary: Mutex<Option<Address>>,
    /// The last primary's endpoint. Kept because it has the last known addresses of the host.
    last_endpoint: Mutex<Option<(Address, Endpoint)>>,
    epoch: Arc<AtomicU64>,
}

/// The epoch in which a connection was opened. An epoch ends when the primary changes.
#[derive(Debug)]
pub(crate) struct PrimaryEpoch {
    number: u64,
    current_number: Arc<AtomicU64>,
}

impl PrimaryEpoch {
    pub(super) fn is_current(&self) -> bool {
        self.current_number.load(Ordering::Relaxed) == self.number
    }
}

impl Sentinels {
    /// `endpoints` must not be empty.
    pub(super) fn new(endpoints: Vec<Endpoint>, master_name: String, server: Endpoint) -> Self {
        Self {
            endpoints,
            master_name,
            server,
            first: AtomicUsize::new(0),
            primary: Mutex::default(),
            last_endpoint: Mutex::default(),
            epoch: Arc::default(),
        }
    }

    /// Time limits for connections to the sentinels and to the primary.
    pub(super) fn timeouts(&self) -> ConnectTimeouts {
        self.server.timeouts()
    }

    /// Connects to the primary: asks one sentinel after another until one reports a server that accepts the connection.
    pub(super) async fn connect(&self) -> Result<(RawConnection, PrimaryEpoch), StoreError> {
        let first = self.first.load(Ordering::Relaxed);
        let number = self.epoch.load(Ordering::Relaxed);
        let mut last = StoreError::Unreachable("no sentinel is configured".into());
        for attempt in 0..self.endpoints.len() {
            let sentinel = (first + attempt) % self.endpoints.len();
            // If the caller stops waiting for this sentinel, the next attempt starts with the next one.
            self.first.store((sentinel + 1) % self.endpoints.len(), Ordering::Relaxed);
            match self.connect_by(sentinel).await {
                Ok((connection, address)) => {
                    self.first.store(sentinel, Ordering::Relaxed);
                    return Ok((connection, self.epoch_of(number, address)));
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Connects to the primary that this sentinel reports.
    async fn connect_by(&self, sentinel: usize) -> Result<(RawConnection, Address), StoreError> {
        let address = self.reported_primary(sentinel, &mut None).await?;
        let limit = self.timeouts().at_least(PRIMARY_TIMEOUT, PRIMARY_ROUND_TRIPS);
        let connected = timeout(limit, self.connect_primary(&address)).await;
        Ok((connected.unwrap_or(Err(StoreError::Timeout))?, address))
    }

    /// Returns the epoch of a new connection to `address`, whose opening began in epoch `number`. If this is not the
    /// last connection's address, starts a new epoch: connections of earlier epochs are replaced.
    fn epoch_of(&self, number: u64, address: Address) -> PrimaryEpoch {
        let mut primary = self.primary.lock();
        let has_changed = primary.as_ref().is_some_and(|known| *known != address);
        *primary = Some(address);
        let number = if has_changed { self.epoch.fetch_add(1, Ordering::Relaxed) + 1 } else { number };
        PrimaryEpoch { number, current_number: Arc::clone(&self.epoch) }
    }

    /// Polls the sentinels. Starts a new epoch when a majority reports a primary other than the last connection's.
    pub(super) async fn watch(&self) -> Infallible {
        let mut connections: Vec<Option<RawConnection>> = self.endpoints.iter().map(|_| None).collect();
        loop {
            sleep(Duration::from_millis(fastrand::u64(POLL_PAUSE_MS))).await;
            let Some(known) = self.primary.lock().clone() else { continue };
            let polls = connections.iter_mut().enumerate();
            let reports = join_all(polls.map(|(sentinel, open)| self.reported_primary(sentinel, open))).await;
            let mut primary = self.primary.lock();
            if let Some(sentinel) = dissenting_majority(&reports, &known)
                && primary.as_ref() == Some(&known)
            {
                // The next connection asks a sentinel of the majority first.
                *primary = None;
                self.first.store(sentinel, Ordering::Relaxed);
                self.epoch.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the primary that a sentinel reports. Uses the connection in `open` if there is one, and leaves one in it
    /// after an answer.
    async fn reported_primary(
        &self,
        sentinel: usize,
        open: &mut Option<RawConnection>,
    ) -> Result<Address, StoreError> {
        let endpoint = &self.endpoints[sentinel];
        let connection = open.take();
        let query = async {
            let mut connection = match connection {
                Some(connection) => connection,
                None => endpoint.connect().await?,
            };
            let mut command = redis::cmd("SENTINEL");
            command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master_name);
            let reported: Option<(String, u16)> = connection.query(&command).await?;
            Ok((connection, reported))
        };
        let limit = self.timeouts().at_least(SENTINEL_TIMEOUT, SENTINEL_ROUND_TRIPS);
        let (connection, reported) = timeout(limit, query).await.unwrap_or(Err(StoreError::Timeout))?;
        *open = Some(connection);
        let unknown = || format!("sentinel {endpoint} does not know the master {:?}", self.master_name);
        let (host, port) = reported.ok_or_else(|| StoreError::Refused(unknown()))?;
        Ok(Address { host, port })
    }

    /// Connects to a server and checks its role: the sentinel may not have noticed a failover yet.
    async fn connect_primary(&self, address: &Address) -> Result<RawConnection, StoreError> {
        let mut connection = self.endpoint_at(address).connect().await?;
        let role: Value = connection.query(&redis::cmd("ROLE")).await?;
        let role = match &role {
            Value::Array(parts) => {
                parts.first().and_then(|part| redis::from_redis_value_ref::<String>(part).ok())
            }
            _ => None,
        };
        match role.as_deref() {
            Some("master") => Ok(connection),
            Some(role) => Err(StoreError::Refused(format!("{address} is a {role}, not a master"))),
            None => Err(StoreError::Malformed(format!("{address} does not report its role"))),
        }
    }

    fn endpoint_at(&self, address: &Address) -> Endpoint {
        let mut last = self.last_endpoint.lock();
        match &*last {
            Some((known, endpoint)) if known == address => endpoint.clone(),
            _ => last.insert((address.clone(), self.server.at(&address.host, address.port))).1.clone(),
        }
    }
}

/// If a majority of all sentinels reports the same primary, and it is not `known`, returns the first sentinel of this
/// majority.
fn dissenting_majority(reports: &[Result<Address, StoreError>], known: &Address) -> Option<usize> {
    let has_majority = |address: &Address| {
        let agreeing = reports.iter().flatten().filter(|reported| *reported == address).count();
        2 * agreeing > reports.len()
    };
    reports
        .iter()
        .position(|reported| reported.as_ref().is_ok_and(|address| address != known && has_majority(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_majority_of_all_sentinels_overrules_a_server_that_answers() {
        let address = |port: u16| Address { host: "redis".to_owned(), port };
        let named = |port: u16| Ok(address(port));
        let silent = || Err(StoreError::Timeout);
        let cases = [
            (vec![named(1), named(1), named(1)], None),
            (vec![named(2), named(1), named(1)], None),
            (vec![named(1), named(2), named(2)], Some(1)),
            (vec![silent(), named(2), named(2)], Some(1)),
            (vec![silent(), silent(), named(2)], None),
            (vec![named(2), named(3), named(1)], None),
            (vec![silent(), silent(), silent()], None),
            (vec![named(2)], Some(0)),
        ];
        for (reports, expected) in cases {
            assert_eq!(dissenting_majority(&reports, &address(1)), expected, "{reports:?}");
        }
    }
}
