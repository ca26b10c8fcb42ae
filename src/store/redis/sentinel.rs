//! Which server is the primary, asked of the sentinels for every connection: a failover needs nothing more than the old
//! primary's connections to break, or to answer that it is a replica now.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::dial::{Door, Wire};
use super::pool::store_error;
use crate::engine::StoreError;

/// A sentinel that does not answer within that is passed over.
const ONE_SENTINEL: Duration = Duration::from_millis(80);

/// The way to the primary.
#[derive(Debug)]
pub(super) struct Sentinels {
    doors: Vec<Door>,
    master: String,
    /// How the servers themselves are spoken to.
    server: Door,
    /// The sentinel that knew last time.
    knew: AtomicUsize,
}

/// The way to whichever server it is.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// Always the same.
    Server(Door),
    /// The one that the sentinels name.
    Master(Arc<Sentinels>),
}

impl Way {
    /// Connects. Has no deadline of its own.
    pub(super) async fn open(&self) -> Result<Wire, StoreError> {
        match self {
            Self::Server(door) => door.open().await,
            Self::Master(sentinels) => sentinels.open().await,
        }
    }
}

impl Sentinels {
    /// `doors` must not be empty.
    pub(super) fn new(doors: Vec<Door>, master: String, server: Door) -> Self {
        Self { doors, master, server, knew: AtomicUsize::new(0) }
    }

    async fn open(&self) -> Result<Wire, StoreError> {
        let first = self.knew.load(Ordering::Relaxed);
        let mut last = StoreError::Unreachable("there is no sentinel".to_owned());
        for turn in 0..self.doors.len() {
            let place = (first + turn) % self.doors.len();
            let named = timeout(ONE_SENTINEL, self.ask(&self.doors[place])).await;
            let opened = match named.unwrap_or(Err(StoreError::Timeout)) {
                Ok((host, port)) => self.open_master(&host, port).await,
                Err(failure) => Err(failure),
            };
            match opened {
                Ok(wire) => {
                    self.knew.store(place, Ordering::Relaxed);
                    return Ok(wire);
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn ask(&self, sentinel: &Door) -> Result<(String, u16), StoreError> {
        let mut wire = sentinel.open().await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let named: Option<(String, u16)> =
            question.query_async(&mut wire.connection).await.map_err(store_error)?;
        named.ok_or_else(|| {
            StoreError::Refused(format!("the sentinel {sentinel:?} knows no master {:?}", self.master))
        })
    }

    /// A sentinel may be behind the times: the server itself says what it is.
    async fn open_master(&self, host: &str, port: u16) -> Result<Wire, StoreError> {
        let mut wire = self.server.at(host, port).open().await?;
        let role: redis::Value =
            redis::cmd("ROLE").query_async(&mut wire.connection).await.map_err(store_error)?;
        let role = match &role {
            redis::Value::Array(parts) => {
                parts.first().and_then(|part| redis::from_redis_value_ref::<String>(part).ok())
            }
            _ => None,
        };
        match role.as_deref() {
            Some("master") => Ok(wire),
            Some(role) => Err(StoreError::Refused(format!("{host}:{port} is a {role}, no master"))),
            None => Err(StoreError::Malformed(format!("{host}:{port} does not say what its role is"))),
        }
    }
}
