//! Counters in Redis: every decision is one part of one script call.
//!
//! A caller's request is encoded (`codec`) and waits on the lane to its server (`lane`) in a bounded queue (`queue`),
//! for as long as that server decides (`guard`) and no longer than makes sense (`pace`); it goes out with all others
//! that wait there as one call (`batch`) of the one script (`script`) over one of a few connections (`pool`), and is reported on by the engine's own functions from the numbers that come back. A standalone
//! server has one lane, a cluster one for each primary (`cluster`). [`Timeline`] decides at times of the caller's
//! choosing. Redis's types stay in here.

mod batch;
mod cluster;
mod codec;
mod dial;
mod guard;
mod lane;
mod meters;
mod names;
mod options;
mod pace;
mod pool;
mod probe;
mod queue;
mod script;
mod sentinel;
mod setback;
mod tasks;
mod timeline;
mod tls;

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::task::JoinError;
use tokio::time::Instant;

use self::batch::Manner;
use self::cluster::Cluster;
use self::codec::{Answer, Encoded};
use self::lane::Lane;
use self::meters::Gauge;
use self::tasks::Tasks;
use crate::clock::Clock;
use crate::engine::{Charges, Outcomes, Reset, Store, StoreError};
use crate::store::breaker::BreakerState;

pub use dial::{Credentials, Password};
pub use meters::{Observer, Turn, Unobserved};
pub use options::{OptionsError, RedisOptions, SentinelOptions, Topology};
pub use probe::{Concern, ServerInfo, ServerVersion, Skew};
pub use script::script_name;
pub use timeline::{Moment, Timeline, TimelineError};
pub use tls::TlsOptions;

/// The Redis store of one worker. Clones share its queues, its batchers and its connections.
///
/// It lives on the runtime it was made in, best a current-thread one: its batchers and connections run there, and when the last
/// clone is dropped they answer what still waits and end. [`RedisStore::shutdown`] does the same and waits for it.
#[derive(Clone)]
pub struct RedisStore {
    handle: Arc<Handle>,
}

struct Handle {
    options: RedisOptions,
    servers: Servers,
}

enum Servers {
    One(Lane, Tasks),
    Cluster(Arc<Cluster>),
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.servers.close();
    }
}

impl Servers {
    fn close(&self) {
        match self {
            Self::One(lane, _) => lane.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("options", &self.handle.options).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Starts the batchers on the current runtime. Redis need not be there yet: decisions fail until it is.
    ///
    /// # Errors
    /// [`OptionsError`] where the options cannot be meant.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(options: &RedisOptions, observer: Arc<dyn Observer>) -> Result<Self, OptionsError> {
        options.check()?;
        let servers = match options.topology {
            Topology::Standalone | Topology::Sentinel(_) => {
                let tasks = Tasks::new();
                let lane = Lane::open(options.way()?, options, Gauge::new(observer), &tasks);
                Servers::One(lane, tasks)
            }
            Topology::Cluster => Servers::Cluster(Cluster::start(options, observer)?),
        };
        Ok(Self { handle: Arc::new(Handle { options: options.clone(), servers }) })
    }

    /// Whether Redis answers in time, by the way that decisions take, script included. Decides nothing. Of a cluster one
    /// primary is enough.
    ///
    /// # Errors
    /// What a decision would meet.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let deadline = self.deadline();
        match &self.handle.servers {
            Servers::One(lane, _) => {
                lane.ask(Encoded::default(), Manner::Shared(None), deadline).await?;
                Ok(())
            }
            Servers::Cluster(cluster) => cluster.ping(deadline).await,
        }
    }

    /// What the servers that decide say of themselves, each over a connection of its own: asks a few questions, decides
    /// nothing. One without an address where there is just one; in a cluster every primary that is known.
    pub async fn servers(&self, clock: &impl Clock) -> Vec<(String, Result<ServerInfo, StoreError>)> {
        let ways = match &self.handle.servers {
            Servers::One(lane, _) => vec![(String::new(), lane.way().clone())],
            Servers::Cluster(cluster) => {
                cluster.known().into_iter().map(|(address, way)| (address.to_string(), way)).collect()
            }
        };
        let asked = ways.into_iter().map(async |(address, way)| (address, probe::ask(&way, clock).await));
        join_all(asked).await
    }

    /// Refuses further decisions, answers those that wait, and returns when the batchers have ended.
    ///
    /// # Errors
    /// [`JoinError`] when one of them had died.
    pub async fn shutdown(&self) -> Result<(), JoinError> {
        match &self.handle.servers {
            Servers::One(lane, tasks) => {
                lane.close();
                tasks.ended().await
            }
            Servers::Cluster(cluster) => cluster.shutdown().await,
        }
    }

    /// The servers that this worker asks, as they are known, and whether it asks them at present. A standalone server has
    /// no name here.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, BreakerState)> {
        match &self.handle.servers {
            Servers::One(lane, _) => vec![(String::new(), lane.breaker())],
            Servers::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Has a request decided whose keys share a slot.
    async fn submit(&self, request: Encoded) -> Result<Answer, StoreError> {
        let deadline = self.deadline();
        match &self.handle.servers {
            Servers::One(lane, _) => Ok(lane.ask(request, Manner::Shared(None), deadline).await?),
            Servers::Cluster(cluster) => cluster.submit(request, deadline).await,
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.handle.options.timeout
    }
}

impl Reset for RedisStore {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let mut forgotten = Vec::with_capacity(charges.as_slice().len());
        for charge in charges.as_slice() {
            let request = Encoded::reset(charges, charge, &self.handle.options.key_prefix);
            forgotten.push(self.submit(request).await?.forgotten()?);
        }
        Ok(forgotten)
    }
}

impl Store for RedisStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let request = Encoded::new(charges, &self.handle.options.key_prefix);
        match &self.handle.servers {
            Servers::One(..) => self.submit(request).await?.outcomes(charges),
            Servers::Cluster(cluster) => cluster.decide(charges, request, self.deadline()).await,
        }
    }
}
