//! An address, and how connections to it are made: credentials, database and TLS. Knows nothing of what is sent.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use engine::StoreError;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use tls::{NotedAlert, NotesAlert};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;

use super::budget::{ConnectBudget, TLS_ROUND_TRIPS};
use super::dial::{self, RawConnection, TlsRefusal};
use super::dns::CachedResolver;
use super::tls::Tls;
use crate::redis::error::{OptionsError, password_file_unusable, unreachable_at};
use crate::redis::options::{Credentials, Password, RedisOptions};
use crate::redis::url::{RedisUrl, RedisUrlError};

/// One server, and how connections to it are made.
#[derive(Clone)]
pub(crate) struct Endpoint {
    server: ConnectionInfo,
    is_tls: bool,
    config: Arc<ConnectConfig>,
    /// For the server's host; not used for a Unix socket.
    resolver: Arc<CachedResolver>,
}

/// What the endpoints of a store share.
struct ConnectConfig {
    credentials: Credentials,
    /// Held while a thread reads the password file: a file system that hangs holds one thread, not one per connection.
    password_file_lock: Arc<AsyncMutex<()>>,
    tls: Option<Tls>,
    budget: ConnectBudget,
}

/// Shows the address only: the URL may hold a password.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.server.addr())
    }
}

/// Shows the address and whether TLS is used: the URL may hold a password.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self}, tls: {})", self.is_tls)
    }
}

/// The servers at the URLs of the options, with these credentials. Connects to nothing.
///
/// # Errors
/// [`OptionsError`] if a URL, a certificate or the password file cannot be used.
pub(crate) fn endpoints(
    options: &RedisOptions,
    credentials: &Credentials,
) -> Result<Vec<Endpoint>, OptionsError> {
    // Only a check: the password file is read again for every connection.
    if let Password::File(path) = &credentials.password {
        first_line(path)?;
    }
    let uses_tls = options.urls.iter().any(RedisUrl::is_tls);
    let tls = uses_tls.then(|| Tls::new(&options.tls)).transpose()?;
    let config = Arc::new(ConnectConfig::new(credentials.clone(), tls, ConnectBudget::new(options.timeout)));
    options.urls.iter().map(|url| Endpoint::new(url, &config)).collect()
}

impl ConnectConfig {
    fn new(credentials: Credentials, tls: Option<Tls>, budget: ConnectBudget) -> Self {
        Self { credentials, password_file_lock: Arc::default(), tls, budget }
    }

    /// The password; `None` for the one in the URL, if any. Reads the file at every call, on a thread of its own.
    async fn password(&self) -> Result<Option<String>, OptionsError> {
        let path = match &self.credentials.password {
            Password::FromUrl => return Ok(None),
            Password::Text(text) => return Ok(Some(text.clone())),
            Password::File(path) => path.clone(),
        };
        let permit = Arc::clone(&self.password_file_lock).lock_owned().await;
        let reading = spawn_blocking({
            let path = path.clone();
            move || {
                let line = first_line(&path);
                drop(permit);
                line
            }
        });
        let line = reading.await.unwrap_or_else(|error| Err(password_file_unusable(&path, error)));
        line.map(Some)
    }
}

fn first_line(path: &Path) -> Result<String, OptionsError> {
    let text = fs::read_to_string(path).map_err(|error| password_file_unusable(path, error))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(password_file_unusable(path, "its first line is empty")),
    }
}

impl Endpoint {
    fn new(url: &RedisUrl, config: &Arc<ConnectConfig>) -> Result<Self, OptionsError> {
        let server = url.to_plain().into_connection_info().map_err(|_| RedisUrlError)?;
        Ok(Self { server, is_tls: url.is_tls(), config: Arc::clone(config), resolver: Arc::default() })
    }

    /// Another server, with the same credentials, database and TLS.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let server = self.server.clone().set_addr(ConnectionAddr::Tcp(host.to_owned(), port));
        Self { server, resolver: Arc::default(), ..self.clone() }
    }

    /// The same server as a sentinel: without the user, password and database of the URL, which are those of the
    /// primary.
    pub(super) fn as_sentinel(&self) -> Self {
        let server = self.server.clone().set_redis_settings(RedisConnectionInfo::default());
        Self { server, ..self.clone() }
    }

    /// Host and port; `None` for a Unix socket.
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => Some((host, *port)),
            _ => None,
        }
    }

    /// How long its connections may take.
    pub(super) fn budget(&self) -> ConnectBudget {
        self.config.budget
    }

    /// Connects and authenticates. Every round trip has a deadline.
    pub(crate) async fn connect(&self) -> Result<RawConnection, StoreError> {
        let (identity, budget) = (self.identity().await?, self.budget());
        match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => {
                #[cfg(test)]
                if let Some(pipe) = crate::redis::testing::dial(host, *port) {
                    return dial::handshake(&identity, pipe?, budget, TlsRefusal::default()).await;
                }
                let stream = dial::connect_tcp(&self.resolver, host, *port, budget).await?;
                match self.config.tls.as_ref().filter(|_| self.is_tls) {
                    Some(tls) => {
                        let stream = budget.wait(TLS_ROUND_TRIPS, tls.connect(stream, host)).await?;
                        let refusal = TlsRefusal { host: host.clone(), noted: NotedAlert::default() };
                        let stream = NotesAlert::new(stream, refusal.noted.clone());
                        dial::handshake(&identity, stream, budget, refusal).await
                    }
                    None => dial::handshake(&identity, stream, budget, TlsRefusal::default()).await,
                }
            }
            ConnectionAddr::Unix(path) => {
                let stream = dial::connect_unix(path).await?;
                dial::handshake(&identity, stream, budget, TlsRefusal::default()).await
            }
            other => Err(unreachable_at(&other)("this kind of address is not supported")),
        }
    }

    /// User, password and database of the handshake.
    async fn identity(&self) -> Result<RedisConnectionInfo, StoreError> {
        let credentials = &self.config.credentials;
        let mut identity = self.server.redis_settings().clone().set_skip_set_lib_name();
        if let Some(username) = &credentials.username {
            identity = identity.set_username(username);
        }
        if let Some(password) = self.config.password().await? {
            identity = identity.set_password(password);
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_url_names_a_server_a_database_and_a_user() {
        let config = Arc::new(ConnectConfig::new(
            Credentials::default(),
            None,
            ConnectBudget::new(Duration::from_millis(15)),
        ));
        for url in
            ["redis://u:p@host:1/2", "rediss://u:p@host:1/2", "unix:///run/redis.sock?db=2&user=u&pass=p"]
        {
            let endpoint = Endpoint::new(&url.parse().expect("a Redis URL"), &config).expect("a good URL");
            let settings = endpoint.server.redis_settings();
            assert_eq!((settings.db(), settings.username(), settings.password()), (2, Some("u"), Some("p")));
            assert_eq!(endpoint.is_tls, url.starts_with("rediss"));
        }
    }

    #[tokio::test]
    async fn a_password_file_that_hangs_fails_the_connection_at_its_deadline() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("password");
        // A reader of a FIFO waits until a writer opens it.
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo is installed").success());
        let credentials = Credentials { username: None, password: Password::File(path.clone()) };
        let config =
            Arc::new(ConnectConfig::new(credentials, None, ConnectBudget::new(Duration::from_millis(15))));
        let endpoint = Endpoint::new(&"redis://host:1".parse().expect("a URL"), &config).expect("a good URL");
        for _ in 0..2 {
            let connecting = timeout(Duration::from_millis(10), endpoint.connect());
            connecting.await.expect_err("the password cannot be read");
        }
        assert!(config.password_file_lock.try_lock().is_err(), "the first thread still reads");
        fs::write(&path, "secret\n").expect("the reader waits");
        let _released = config.password_file_lock.lock().await;
    }
}
