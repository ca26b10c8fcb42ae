//! What the Redis store is to be told. Knows how it becomes the way to a server; never shows a credential.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::dial::{self, Credentials, Door, How};
use super::sentinel::{Sentinels, Way};
use super::tls::{Tls, TlsOptions};

use crate::store::breaker::BreakerOptions;

/// Where Redis is and how it is used. Every worker has a store, and so its own connections, of its own.
#[derive(Clone)]
pub struct RedisOptions {
    /// What the URLs lead to.
    pub topology: Topology,
    /// Each `redis://[user:password@]host[:port][/database]`, `rediss://` with TLS, or `unix:///path[?db=&user=&pass=]`. Of a
    /// standalone server the first, of a cluster any nodes to begin with, and the sentinels; what the first one says of
    /// user, password, database and TLS goes for every server (for the sentinels, not the database).
    pub urls: Vec<String>,
    /// Who we are, where that is not in the URL.
    pub credentials: Credentials,
    /// For `rediss://`.
    pub tls: TlsOptions,
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
    /// A primary with replicas, watched by the sentinels that the URLs lead to.
    Sentinel(SentinelOptions),
    /// A Redis Cluster, of which the URLs are seeds.
    Cluster,
}

/// What is asked of sentinels, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentinelOptions {
    /// The name by which they know the primary.
    pub master: String,
    /// Who we are to them; not as the URLs say, which goes for the servers.
    pub credentials: Credentials,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            topology: Topology::Standalone,
            urls: vec!["redis://127.0.0.1:6379".to_owned()],
            credentials: Credentials::default(),
            tls: TlsOptions::default(),
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
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
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
    /// A password file that holds none.
    #[error("the password file {} cannot be used: {reason}", .path.display())]
    PasswordFile {
        /// Which.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A certificate or a key that is none.
    #[error("{} cannot be used for TLS: {reason}", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be used: {0}")]
    Tls(String),
    /// A number that must be at least 1 is 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

impl RedisOptions {
    /// The way to the one server that decides. Connects to nothing.
    pub(super) fn way(&self) -> Result<Way, OptionsError> {
        let mut doors = self.doors(&self.credentials)?;
        if doors.is_empty() {
            return Err(OptionsError::Zero("urls"));
        }
        match &self.topology {
            Topology::Standalone | Topology::Cluster => Ok(Way::Server(doors.swap_remove(0))),
            Topology::Sentinel(sentinel) => {
                let server = doors.swap_remove(0);
                let sentinels = self.doors(&sentinel.credentials)?.into_iter().map(Door::of_a_sentinel);
                let master = sentinel.master.clone();
                Ok(Way::Master(Arc::new(Sentinels::new(sentinels.collect(), master, server))))
            }
        }
    }

    /// Where the URLs lead.
    pub(super) fn doors(&self, credentials: &Credentials) -> Result<Vec<Door>, OptionsError> {
        credentials.password.check()?;
        let speaks_tls = self.urls.iter().any(|url| dial::parse(url).is_ok_and(|(_, is_tls)| is_tls));
        let tls = speaks_tls.then(|| Tls::new(&self.tls)).transpose()?;
        let how = Arc::new(How { credentials: credentials.clone(), tls });
        self.urls.iter().map(|url| Door::new(url, Arc::clone(&how))).collect()
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
            ["redis://user:hunter2@:x:/", "rediss://user:hunter2@:x:/", "hunter2", "redis://u:hunter2@h/db"]
        {
            let options = RedisOptions { urls: vec![url.to_owned()], ..RedisOptions::default() };
            let error = options.way().expect_err("the URL is of no use");
            assert!(!format!("{options:?} {error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn sockets_databases_and_users_are_understood() {
        for url in
            ["redis://u:p@host:1/2", "rediss://u:p@host:1/2", "unix:///run/redis.sock?db=2&user=u&pass=p"]
        {
            let (server, is_tls) = dial::parse(url).expect("a good URL");
            let settings = server.redis_settings();
            assert_eq!((settings.db(), settings.username(), settings.password()), (2, Some("u"), Some("p")));
            assert_eq!(is_tls, url.starts_with("rediss"));
        }
    }
}
