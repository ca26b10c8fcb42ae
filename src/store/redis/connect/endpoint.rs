//! An address, and how connections to it are made: credentials, database and TLS. Knows nothing of what is sent.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::dial::{self, RawConnection};
use super::dns::CachedResolver;
use super::tls::Tls;
use crate::engine::StoreError;
use crate::store::redis::error::{OptionsError, password_file_unusable};
use crate::store::redis::options::{Credentials, Password, RedisOptions};
use crate::store::redis::url::{RedisUrl, RedisUrlError};

/// One server, and how connections to it are made.
#[derive(Clone)]
pub(crate) struct Endpoint {
    server: ConnectionInfo,
    is_tls: bool,
    config: Arc<ConnectConfig>,
    /// Of the server's host; unused for a Unix socket.
    resolver: Arc<CachedResolver>,
}

/// What the endpoints of a store share.
struct ConnectConfig {
    credentials: Credentials,
    tls: Option<Tls>,
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
    // Only a check: a password file is read again for every connection.
    read_password(&credentials.password)?;
    let uses_tls = options.urls.iter().any(RedisUrl::is_tls);
    let tls = uses_tls.then(|| Tls::new(&options.tls)).transpose()?;
    let config = Arc::new(ConnectConfig { credentials: credentials.clone(), tls });
    options.urls.iter().map(|url| Endpoint::new(url, &config)).collect()
}

/// The password; `None` for the one in the URL, if any. Reads the file at every call.
fn read_password(password: &Password) -> Result<Option<String>, OptionsError> {
    match password {
        Password::FromUrl => Ok(None),
        Password::Text(text) => Ok(Some(text.clone())),
        Password::File(path) => first_line(path).map(Some),
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

    /// Connects and authenticates. Has no deadline of its own.
    pub(crate) async fn connect(&self) -> Result<RawConnection, StoreError> {
        let identity = self.identity()?;
        match self.server.addr() {
            ConnectionAddr::Tcp(host, port) => {
                #[cfg(test)]
                if let Some(pipe) = crate::store::redis::testing::dial(host, *port) {
                    return dial::handshake(&identity, pipe?).await;
                }
                let stream = dial::connect_tcp(&self.resolver, host, *port).await?;
                match self.config.tls.as_ref().filter(|_| self.is_tls) {
                    Some(tls) => dial::handshake(&identity, tls.connect(stream, host).await?).await,
                    None => dial::handshake(&identity, stream).await,
                }
            }
            ConnectionAddr::Unix(path) => dial::handshake(&identity, dial::connect_unix(path).await?).await,
            other => Err(StoreError::Unreachable(format!("{other}: this kind of address is not supported"))),
        }
    }

    /// User, password and database of the handshake.
    fn identity(&self) -> Result<RedisConnectionInfo, StoreError> {
        let credentials = &self.config.credentials;
        let mut identity = self.server.redis_settings().clone().set_skip_set_lib_name();
        if let Some(username) = &credentials.username {
            identity = identity.set_username(username);
        }
        if let Some(password) = read_password(&credentials.password)? {
            identity = identity.set_password(password);
        }
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server_a_database_and_a_user() {
        let config = Arc::new(ConnectConfig { credentials: Credentials::default(), tls: None });
        for url in
            ["redis://u:p@host:1/2", "rediss://u:p@host:1/2", "unix:///run/redis.sock?db=2&user=u&pass=p"]
        {
            let endpoint = Endpoint::new(&url.parse().expect("a Redis URL"), &config).expect("a good URL");
            let settings = endpoint.server.redis_settings();
            assert_eq!((settings.db(), settings.username(), settings.password()), (2, Some("u"), Some("p")));
            assert_eq!(endpoint.is_tls, url.starts_with("rediss"));
        }
    }
}
