//! What the process needs of a store on other machines, besides decisions: to reach it, describe it, watch it and close
//! it.

use std::error::Error;
use std::future::Future;

use engine::{Reset, Store, StoreError};

use super::breaker::BreakerState;

/// A store on other machines. Clones share its connections and its tasks.
pub trait RemoteStore: Store + Reset + Clone + 'static {
    /// The product, for log lines.
    const PRODUCT: &'static str;

    /// Whether the store decides: makes a decision on a counter that no rule uses, and records it. Of several servers,
    /// all must decide. `needs_log`: whether it must also keep a sliding log, for which it may need further
    /// permissions.
    ///
    /// # Errors
    /// The error that a decision would get.
    fn probe(&self, needs_log: bool) -> impl Future<Output = Result<(), ProbeFailure>> + Send;

    /// Asks every server that decides for its description.
    fn servers(&self) -> impl Future<Output = Vec<ServerReport>> + Send;

    /// The address and the breaker of every server that this store calls. The address is empty for a single server;
    /// where the store has two groups of servers, the name of the second is before the address.
    fn nodes(&self) -> Vec<(String, BreakerState)>;

    /// Whether the store sends calls, as its breakers say: one entry for each group of servers.
    fn groups(&self) -> Vec<GroupStatus>;

    /// The connections for decisions that were opened since the start. A new connection may reach a server that was
    /// restarted.
    fn connections_opened(&self) -> u64;

    /// Resolves with the reason when a task of the store dies; pending while all tasks run.
    fn died(&self) -> impl Future<Output = Box<dyn Error + Send + Sync>> + Send + 'static;

    /// Refuses further decisions, answers those that wait, and returns when the tasks of the store have ended.
    ///
    /// # Errors
    /// The reason, if a task has died.
    fn close(&self) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static;
}

/// A group of servers, and whether one of them decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The name; `None` where the store has one group.
    pub name: Option<&'static str>,
    /// Why none of the servers decides.
    pub failure: Option<StoreError>,
}

/// Why a store does not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure {
    /// The groups of servers that do not decide; `None` where the store has one group.
    pub groups: Option<String>,
    /// The error of the first of them.
    pub error: StoreError,
}

impl ProbeFailure {
    /// `None` if each group decides.
    #[must_use]
    pub fn of_groups(groups: &[GroupStatus]) -> Option<Self> {
        let failed: Vec<&GroupStatus> = groups.iter().filter(|group| group.failure.is_some()).collect();
        let error = failed.first()?.failure.clone()?;
        let names: Vec<&str> = failed.iter().filter_map(|group| group.name).collect();
        Some(Self { groups: (!names.is_empty()).then(|| names.join(" and ")), error })
    }
}

impl From<StoreError> for ProbeFailure {
    fn from(error: StoreError) -> Self {
        Self { groups: None, error }
    }
}

/// One server of a remote store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// As in [`RemoteStore::nodes`].
    pub address: String,
    /// The description; the error of the attempt to get it.
    pub description: Result<ServerDescription, StoreError>,
}

/// A server, for logs and the admin page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDescription {
    /// Program and version.
    pub server: String,
    /// The identity of the running process, another one after each restart; `None` if it is not known.
    pub run_id: Option<String>,
    /// The keys that it has; `None` if it is not known.
    pub keys: Option<u64>,
    /// The eviction policy.
    pub eviction: String,
    /// The difference between its clock and ours.
    pub clock: String,
    /// Problems that the operator should solve.
    pub concerns: Vec<String>,
}
