//! Opens usable connections to an address: DNS, TCP, TLS, handshake, sentinels and the pool.

mod dial;
mod dns;
mod endpoint;
mod pool;
mod sentinel;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use engine::StoreError;

use self::dial::DIAL_ROUND_TRIPS;
use self::sentinel::{PRIMARY_ROUND_TRIPS, PrimaryEpoch, SENTINEL_ROUND_TRIPS, Sentinels};
use crate::redis::error::OptionsError;
use crate::redis::options::{RedisOptions, Topology};

pub(crate) use self::dial::{ConnectTimeouts, RawConnection};
pub(crate) use self::endpoint::{Endpoint, endpoints};
pub(crate) use self::pool::{Connection, ConnectionPool, checkout, checkout_timeout, connection_pool};

/// Where connections lead.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Server(Endpoint),
    /// The primary that the sentinels report.
    Primary(Arc<Sentinels>),
}

impl Target {
    /// Does not connect.
    pub(crate) fn new(options: &RedisOptions) -> Result<Self, OptionsError> {
        let servers = endpoints(options, &options.credentials)?;
        let server = servers.into_iter().next().ok_or(OptionsError::NoUrl)?;
        match &options.topology {
            Topology::Standalone | Topology::Cluster => Ok(Self::Server(server)),
            Topology::Sentinel(sentinel) => {
                let sentinels = endpoints(options, &sentinel.credentials)?;
                let sentinels = sentinels.iter().map(Endpoint::as_sentinel).collect();
                Ok(Self::Primary(Arc::new(Sentinels::new(sentinels, sentinel.master.clone(), server))))
            }
        }
    }

    /// Time for [`Target::connect`] plus this many round trips, but at least `least`.
    pub(crate) fn connect_time(&self, least: Duration, further_round_trips: u32) -> Duration {
        let (timeouts, round_trips) = match self {
            Self::Server(endpoint) => (endpoint.timeouts(), DIAL_ROUND_TRIPS),
            Self::Primary(sentinels) => (sentinels.timeouts(), SENTINEL_ROUND_TRIPS + PRIMARY_ROUND_TRIPS),
        };
        timeouts.at_least(least, round_trips + further_round_trips)
    }

    /// Connects. With sentinels, also returns the epoch in which the connection leads to the primary. Every round trip
    /// has a deadline.
    pub(crate) async fn connect(&self) -> Result<(RawConnection, Option<PrimaryEpoch>), StoreError> {
        match self {
            Self::Server(endpoint) => Ok((endpoint.connect().await?, None)),
            Self::Primary(sentinels) => {
                let (connection, epoch) = sentinels.connect().await?;
                Ok((connection, Some(epoch)))
            }
        }
    }

    /// Returns a task that watches for a new primary forever; `None` if the target never changes.
    pub(crate) fn watch(&self) -> Option<impl Future<Output = Infallible> + Send + use<>> {
        match self {
            Self::Server(_) => None,
            Self::Primary(sentinels) => {
                let sentinels = Arc::clone(sentinels);
                Some(async move { sentinels.watch().await })
            }
        }
    }
}
