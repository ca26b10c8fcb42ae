//! Options of the Redis store: plain data, whose `Debug` shows no secret.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use strum::IntoStaticStr;
use tls::ClientTls;

use super::error::OptionsError;
use super::url::RedisUrl;
use crate::breaker::BreakerOptions;

/// Where Redis is and how to use it. Each worker has its own store, and so its own connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    pub topology: Topology,
    /// `redis://[user:password@]host[:port][/database]`, `rediss://` with TLS, or `unix:///path[?db=&user=&pass=]`
    /// (also written `redis+unix:///`).
    ///
    /// Standalone: the first URL is the server. Cluster: any nodes, to discover the others. Sentinel: the sentinels.
    /// User, password, database and TLS of the first URL are used for every server; sentinels get only its TLS.
    pub urls: Vec<RedisUrl>,
    /// Override user and password in the URL.
    pub credentials: Credentials,
    /// Servers for the counters of one-second limits; `None` if all counters are on the same servers. All other options
    /// apply to both.
    pub per_second: Option<ServerOptions>,
    /// Servers for counters that all regions share, if there are any. All other options but the timeout
    /// apply to them, too.
    pub home: Option<HomeOptions>,
    /// For `rediss://`.
    pub tls: ClientTls,
    /// Comes before every key.
    pub key_prefix: String,
    /// Decision timeout.
    pub timeout: Duration,
    /// Connections from one worker to one server, at least 1. Each has one batch in flight.
    pub connections: u32,
    /// Maximum counters per batch, at least 1. A request with more counters goes alone.
    pub max_batch: usize,
    /// Maximum requests that wait for a batch, at least 1. Further requests are refused immediately.
    pub max_queue: usize,
    pub breaker: BreakerOptions,
}

/// Servers and their credentials. The fields are as in [`RedisOptions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    pub topology: Topology,
    /// The servers, some of them, or the sentinels.
    pub urls: Vec<RedisUrl>,
    /// Override user and password in the URL.
    pub credentials: Credentials,
}

/// Servers for counters of all regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeOptions {
    pub servers: ServerOptions,
    /// Decision timeout, instead of [`RedisOptions::timeout`].
    pub timeout: Duration,
}

/// How many servers there are, and how they are discovered.
#[derive(Clone, Debug, Default, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Topology {
    #[default]
    Standalone,
    /// A primary with replicas, monitored by sentinels.
    Sentinel(SentinelOptions),
    Cluster,
}

/// How to query the sentinels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentinelOptions {
    /// Name of the primary in the sentinels' configuration.
    pub master: String,
    /// Credentials for the sentinels. Those in the URLs are for the servers.
    pub credentials: Credentials,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The ACL user; `None` for the one in the URL, or `default`.
    pub username: Option<String>,
    pub password: Password,
}

/// Source of the password.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Password {
    /// From the URL, which may not have one.
    #[default]
    FromUrl,
    Text(String),
    /// The first line of this file, read for every connection so that the password can be rotated.
    File(PathBuf),
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            topology: Topology::Standalone,
            urls: vec!["redis://127.0.0.1:6379".parse().expect("a valid URL")],
            credentials: Credentials::default(),
            per_second: None,
            home: None,
            tls: ClientTls::default(),
            key_prefix: "ratelimitd:".to_owned(),
            timeout: Duration::from_millis(15),
            connections: 2,
            max_batch: 128,
            max_queue: 8192,
            breaker: BreakerOptions::default(),
        }
    }
}

/// Shows where the password comes from, never the password.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromUrl => f.write_str("FromUrl"),
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl RedisOptions {
    /// The options of the servers for one-second limits.
    pub(super) fn of_per_second(&self) -> Option<Self> {
        Some(self.with_servers(self.per_second.clone()?))
    }

    /// The options of the servers for all regions.
    pub(super) fn of_home(&self) -> Option<Self> {
        let HomeOptions { servers, timeout } = self.home.clone()?;
        Some(Self { timeout, ..self.with_servers(servers) })
    }

    fn with_servers(&self, ServerOptions { topology, urls, credentials }: ServerOptions) -> Self {
        Self { topology, urls, credentials, ..self.clone() }
    }

    /// Checks the options that must be at least 1. The settings check the other ranges of the breaker's options.
    /// `Target` and the cluster router check that there is a URL.
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let at_least_one = [
            ("connections", self.connections > 0),
            ("max_batch", self.max_batch > 0),
            ("max_queue", self.max_queue > 0),
            ("breaker.failures", self.breaker.failures > 0),
        ];
        match at_least_one.iter().find(|(_, holds)| !holds) {
            Some((name, _)) => Err(OptionsError::Zero(name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let credentials =
            Credentials { username: Some("user".to_owned()), password: Password::Text("hunter2".to_owned()) };
        let sentinel = SentinelOptions { master: "m".to_owned(), credentials: credentials.clone() };
        let options = RedisOptions {
            topology: Topology::Sentinel(sentinel),
            urls: vec!["redis://user:hunter2@host:1/2".parse().expect("a valid URL")],
            credentials,
            ..RedisOptions::default()
        };
        let shown = format!("{options:?}");
        assert!(shown.contains("redis://host:1/2") && !shown.contains("hunter2"), "{shown}");
    }
}
