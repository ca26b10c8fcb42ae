//! What operators are told of the servers: which decide, and what they are.

use engine::StoreError;

use super::server_info::ServerInfo;

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

/// One server of a Redis store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// The name in [`RedisStore::nodes`](super::RedisStore::nodes).
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
    pub eviction: String,
    /// The difference between its clock and ours.
    pub clock: String,
    /// Problems that the operator should solve.
    pub concerns: Vec<String>,
}

impl From<ServerInfo> for ServerDescription {
    fn from(info: ServerInfo) -> Self {
        let concerns = info.concerns().iter().map(ToString::to_string).collect();
        Self {
            server: known_or_reason(&info.server),
            run_id: info.run_id,
            keys: info.keys.ok(),
            eviction: known_or_reason(&info.eviction),
            clock: known_or_reason(&info.clock),
            concerns,
        }
    }
}

/// A fact, or why it is unknown.
fn known_or_reason(fact: &Result<impl ToString, StoreError>) -> String {
    fact.as_ref().map_or_else(|error| format!("unknown ({error})"), ToString::to_string)
}
