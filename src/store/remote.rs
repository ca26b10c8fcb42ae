//! What the process needs of a store on other machines, besides decisions: to reach it, describe it, watch it and close
//! it.

use std::error::Error;
use std::future::Future;

use super::breaker::BreakerState;
use crate::engine::{Reset, Store, StoreError};

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

    /// Resolves with the reason when a task of the store dies; pending while all tasks run.
    fn died(&self) -> impl Future<Output = Box<dyn Error + Send + Sync>> + Send + 'static;

    /// Refuses further decisions, answers those that wait, and returns when the tasks of the store have ended.
    ///
    /// # Errors
    /// The reason, if a task has died.
    fn close(&self) -> impl Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + Send + 'static;
}

/// Why a store does not decide.
#[derive(Debug)]
pub struct ProbeFailure {
    /// The group of servers that does not decide; `None` where the store has one group.
    pub group: Option<&'static str>,
    /// The error of that group, or of the first one.
    pub error: StoreError,
}

impl From<StoreError> for ProbeFailure {
    fn from(error: StoreError) -> Self {
        Self { group: None, error }
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
    /// The eviction policy.
    pub eviction: String,
    /// The difference between its clock and ours.
    pub clock: String,
    /// Problems that the operator should solve.
    pub concerns: Vec<String>,
}
