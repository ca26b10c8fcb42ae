//! An address, and how connections to it are made: credentials, database and TLS. Knows nothing of what is sent.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base::on_blocking_thread;
use engine::StoreError;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use tls::{ClientConnector, ClientTls, ClientTlsError, MAX_SECRET_BYTES, dial_unix, read_secret};
use tokio::sync::Mutex as AsyncMutex;

use super::dial::{self, ConnectTimeouts, RawConnection};
use super::dns::CachedResolver;
use crate::redis::error::{OptionsError, unreachable_at};
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
    tls: Option<ClientConnector>,
    timeouts: ConnectTimeouts,
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
/// [`OptionsError`] if a URL, a certificate or cannot use the password file.
pub(crate) fn endpoints(
    options: &RedisOptions,
    credentials: &Credentials,
) -> Result<Vec<Endpoint>, OptionsError> {
    // Only a check: the password file is read again for every connection.
    if let Password::File(path) = &credentials.password {
        read_password(path)?;
    }
    let uses_tls = options.urls.iter().any(RedisUrl::is_tls);
    let tls = uses_tls.then(|| tls_connector(&options.tls)).transpose()?;
    let config =
        Arc::new(ConnectConfig::new(credentials.clone(), tls, ConnectTimeouts::new(options.timeout)));
    options.urls.iter().map(|url| Endpoint::new(url, &config)).collect()
}

impl ConnectConfig {
    fn new(credentials: Credentials, tls: Option<ClientConnector>, timeouts: ConnectTimeouts) -> Self {
        Self { credentials, password_file_lock: Arc::default(), tls, timeouts }
    }

    /// The password; `None` for the one in the URL, if any. Reads the file at every call, on a thread of its own.
    async fn password(&self) -> Result<Option<String>, OptionsError> {
        let path = match &self.credentials.password {
            Password::FromUrl => return Ok(None),
            Password::Text(text) => return Ok(Some(text.clone())),
            Password::File(path) => path.clone(),
        };
        let permit = Arc::clone(&self.password_file_lock).lock_owned().await;
        let reading = on_blocking_thread(move || {
            let password = read_password(&path);
            drop(permit);
            password
        });
        reading.await.map(Some)
    }
}

fn read_password(path: &Path) -> Result<String, OptionsError> {
    let expected = format!("1 to {MAX_SECRET_BYTES} bytes of text in UTF-8");
    let parse = |line: &str| (!line.is_empty()).then(|| line.to_owned());
    read_secret(path, &expected, parse).map_err(OptionsError::PasswordFile)
}

/// Reads the certificates and the key, once for each store: renewed ones need a restart.
fn tls_connector(options: &ClientTls) -> Result<ClientConnector, ClientTlsError> {
    match options.read_files(None) {
        Err(ClientTlsError::System(reason)) if options.ca_file.is_some() => {
            tracing::warn!(error = reason, "cannot load system CAs; trusting only ca_file");
            ClientTls { trust_system: false, ..options.clone() }.read_files(None)
        }
        read => read,
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
    pub(super) fn timeouts(&self) -> ConnectTimeouts {
        self.config.timeouts
    }

    /// Connects and authenticates. Every round trip has a deadline.
    pub(crate) async fn connect(&self) -> Result<RawConnection, StoreError> {
        let (identity, timeouts) = (self.identity().await?, self.timeouts());
        let stream = match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => {
                #[cfg(test)]
                if let Some(pipe) = crate::redis::testing::dial(host, *port) {
                    return dial::handshake(&identity, Box::new(pipe?), timeouts).await;
                }
                let tls = self.config.tls.as_ref().filter(|_| self.is_tls);
                dial::connect_host(&self.resolver, host, *port, tls, timeouts).await?
            }
            ConnectionAddr::Unix(path) => dial_unix(path).await.map_err(unreachable_at(&path.display()))?,
            other => return Err(unreachable_at(&other)("this kind of address is not supported")),
        };
        dial::handshake(&identity, stream, timeouts).await
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
            ConnectTimeouts::new(Duration::from_millis(15)),
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
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "secret\n").expect("room for a password");
        let credentials = Credentials { username: None, password: Password::File(file.path().to_owned()) };
        let config =
            Arc::new(ConnectConfig::new(credentials, None, ConnectTimeouts::new(Duration::from_millis(15))));
        let endpoint = Endpoint::new(&"redis://host:1".parse().expect("a URL"), &config).expect("a good URL");
        // A thread that reads the file holds this lock.
        let reading = config.password_file_lock.lock().await;
        for _ in 0..2 {
            let connecting = timeout(Duration::from_millis(10), endpoint.connect());
            connecting.await.expect_err("the password cannot be read");
        }
        drop(reading);
        let password = config.password().await.expect("a password");
        assert_eq!(password.as_deref(), Some("secret"));
        let _released = config.password_file_lock.lock().await;
    }
}
