//! What the Redis store is to be told. Knows how a URL becomes a client; never shows a credential.

use std::fmt;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo, IntoConnectionInfo};

use crate::store::breaker::BreakerOptions;

/// Where Redis is and how it is used. Every worker has a store, and so its own connections, of its own.
#[derive(Clone)]
pub struct RedisOptions {
    /// What the URLs lead to.
    pub topology: Topology,
    /// Each `redis://[user:password@]host[:port][/database]` or `unix:///path[?db=&user=&pass=]`. Of a standalone server
    /// the first, of a cluster any nodes to begin with; the first one's credentials are used with every node.
    pub urls: Vec<String>,
    /// Stands before every key.
    pub key_prefix: String,
    /// The longest a decision may take, from when it is asked for.
    pub timeout: Duration,
    /// Connections of one worker, at least 1: so many batches are under way at once.
    pub connections: u32,
    /// The most counters of one batch, at least 1; a request that asks more goes alone.
    pub max_batch: usize,
    /// The most requests that wait for a batch, at least 1; further ones are refused at once.
    pub max_queue: usize,
    /// When a server that does not decide is not asked any more; `None`: it is always asked.
    pub breaker: Option<BreakerOptions>,
}

/// How many servers there are, and how they are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// One, at the URL.
    #[default]
    Standalone,
    /// A Redis Cluster, of which the URLs are seeds.
    Cluster,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            topology: Topology::Standalone,
            urls: vec!["redis://127.0.0.1:6379".to_owned()],
            key_prefix: "ratelimitd:".to_owned(),
            timeout: Duration::from_millis(15),
            connections: 2,
            max_batch: 128,
            max_queue: 8192,
            breaker: Some(BreakerOptions::default()),
        }
    }
}

/// Shows everything but the URLs, which may hold passwords.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("topology", &self.topology)
            .field("key_prefix", &self.key_prefix)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("max_batch", &self.max_batch)
            .field("max_queue", &self.max_queue)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}

/// Why options make no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The URL says nothing that can be connected to. The text is the client library's; it does not quote the URL.
    #[error("the Redis URL cannot be used: {0}")]
    Url(String),
    /// A number that must be at least 1 is 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

impl RedisOptions {
    /// A client for the first URL. Connects to nothing.
    pub(super) fn client(&self) -> Result<Client, OptionsError> {
        let info = self.servers()?.into_iter().next().ok_or(OptionsError::Zero("urls"))?;
        Client::open(info).map_err(|error| OptionsError::Url(error.to_string()))
    }

    /// What the URLs say.
    pub(super) fn servers(&self) -> Result<Vec<ConnectionInfo>, OptionsError> {
        let server = |url: &String| {
            let info = url.as_str().into_connection_info();
            let info = info.map_err(|error| OptionsError::Url(error.to_string()))?;
            // Batches are small and each waits for its answer: held back by Nagle's algorithm they would stall.
            Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
        };
        self.urls.iter().map(server).collect()
    }

    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let at_least_one = [
            ("urls", !self.urls.is_empty()),
            ("connections", self.connections > 0),
            ("max_batch", self.max_batch > 0),
            ("max_queue", self.max_queue > 0),
            ("breaker.failures", self.breaker.is_none_or(|breaker| breaker.failures > 0)),
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
    fn neither_debug_nor_errors_show_the_url() {
        for url in
            ["redis://user:hunter2@:x:/", "rediss://user:hunter2@host", "hunter2", "redis://u:hunter2@h/db"]
        {
            let options = RedisOptions { urls: vec![url.to_owned()], ..RedisOptions::default() };
            let error = options.client().expect_err("the URL is of no use");
            assert!(!format!("{options:?} {error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn sockets_databases_and_users_are_understood() {
        for url in ["redis://u:p@host:1/2", "unix:///run/redis.sock?db=2&user=u&pass=p"] {
            let options = RedisOptions { urls: vec![url.to_owned()], ..RedisOptions::default() };
            let client = options.client().expect("a good URL");
            let settings = client.get_connection_info().redis_settings();
            assert_eq!((settings.db(), settings.username(), settings.password()), (2, Some("u"), Some("p")));
        }
    }
}
