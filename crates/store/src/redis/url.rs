//! The URL of a Redis server. It can contain a password, so it is printed without user, password and parameters.

use std::fmt;
use std::str::FromStr;

use redis::IntoConnectionInfo as _;
use url::Url;

/// `redis://` and `rediss://` with a host, `redis+unix://` and `unix://` with an absolute path.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(Url);

/// The string is not the URL of a Redis server. The error does not quote it, because it can contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected redis://host[:port][/database], rediss:// for TLS, or unix:///path (also redis+unix:///path)"
)]
pub struct RedisUrlError;

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `Url` drops tabs and line feeds and encodes spaces.
        if text.contains(char::is_whitespace) {
            return Err(RedisUrlError);
        }
        let url = Self(Url::parse(text).map_err(|_| RedisUrlError)?);
        let is_valid = match url.0.scheme() {
            "redis" | "rediss" => url.is_server(),
            "redis+unix" | "unix" => url.0.host().is_none() && url.0.path().len() > 1,
            _ => false,
        };
        is_valid.then_some(url).ok_or(RedisUrlError)
    }
}

impl RedisUrl {
    pub fn is_socket(&self) -> bool {
        self.0.scheme().ends_with("unix")
    }

    /// `true` if its path is a database other than 0; `false` for a socket, whose path is a file.
    pub fn names_database(&self) -> bool {
        !self.is_socket() && self.database().is_some_and(|database| database > 0)
    }

    /// `true` for `rediss://`.
    pub fn is_tls(&self) -> bool {
        self.0.scheme() == "rediss"
    }

    /// Returns the URL with user, password and parameters, for redis-rs. The scheme is never `rediss`, which redis-rs
    /// accepts only when built with a TLS library of its own.
    pub(super) fn to_plain(&self) -> Url {
        let mut url = self.0.clone();
        if self.is_tls() {
            url.set_scheme("redis").expect("neither scheme is special, so one can replace the other");
        }
        url
    }

    /// Decoded user and password of the URL.
    pub fn credentials(&self) -> (Option<String>, Option<String>) {
        let info = self.to_plain().into_connection_info();
        let settings = info.as_ref().ok().map(redis::ConnectionInfo::redis_settings);
        let text = |part: Option<&str>| part.filter(|text| !text.is_empty()).map(str::to_owned);
        (
            settings.and_then(|settings| text(settings.username())),
            settings.and_then(|settings| text(settings.password())),
        )
    }

    /// Returns the URL as written, with user and password. Not for logs or errors.
    pub fn with_credentials(&self) -> String {
        self.0.as_str().to_owned()
    }

    fn is_server(&self) -> bool {
        // An unencoded `?` or `#` in a password ends the URL's authority too early.
        let has_at = |part: Option<&str>| part.is_some_and(|part| part.contains('@'));
        let is_cut = has_at(self.0.query()) || has_at(self.0.fragment());
        self.0.host().is_some() && self.0.port() != Some(0) && self.database().is_some() && !is_cut
    }

    /// Returns the database, 0 if the URL does not name one; `None` if the path is not an integer.
    fn database(&self) -> Option<u32> {
        match self.0.path().trim_start_matches('/') {
            "" => Some(0),
            number => number.parse().ok(),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.clone();
        shown.set_query(None);
        shown.set_fragment(None);
        // Both fail for a URL without a host, which has no user.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        f.write_str(shown.as_str())
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_url_is_printed_without_secrets() {
        let cases = [
            // (written, printed)
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://redis", "redis://redis"),
            ("redis://redis:6380/3", "redis://redis:6380/3"),
            ("redis://redis/", "redis://redis/"),
            ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
            ("redis://:pa@ss@host:1", "redis://host:1"),
            ("redis://user:secret@host?protocol=resp3", "redis://host"),
            ("rediss://user:secret@host", "rediss://host"),
            ("redis+unix:///run/redis.sock?db=1&pass=secret", "redis+unix:///run/redis.sock"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
            ("unix:///run/redis.sock?pass=s@cret", "unix:///run/redis.sock"),
        ];
        for (written, printed) in cases {
            let url: RedisUrl = written.parse().unwrap_or_else(|_| panic!("{written} is valid"));
            assert_eq!(url.to_string(), printed);
            assert_eq!(format!("{url:?}"), format!("RedisUrl({printed})"));
        }
    }

    #[test]
    fn redis_rs_gets_user_password_and_database() {
        let cases = [
            // (written, is TLS, password)
            ("redis://u:p@host:1/2", false, "p"),
            ("rediss://u:p@host:1/2", true, "p"),
            ("redis://u:pa@ss@host:1/2", false, "pa@ss"),
            ("redis://u:p%2F@host:1/2", false, "p/"),
            ("unix:///run/redis.sock?db=2&user=u&pass=p", false, "p"),
        ];
        for (written, is_tls, password) in cases {
            let url: RedisUrl = written.parse().expect("a valid URL");
            let info = url.to_plain().into_connection_info().expect("redis-rs accepts the URL");
            let settings = info.redis_settings();
            let found = (settings.db(), settings.username(), settings.password());
            assert_eq!(found, (2, Some("u"), Some(password)), "{written}");
            assert_eq!(url.credentials(), (Some("u".to_owned()), Some(password.to_owned())), "{written}");
            assert_eq!(url.is_tls(), is_tls, "{written}");
        }
    }

    #[test]
    fn redis_rs_gets_the_path_of_a_socket_decoded() {
        let url: RedisUrl = "redis+unix:///run/my%20redis/a%2520%231.sock".parse().expect("a valid URL");
        let info = url.to_plain().into_connection_info().expect("redis-rs accepts the URL");
        let expected = redis::ConnectionAddr::Unix("/run/my redis/a%20#1.sock".into());
        assert_eq!(info.addr(), &expected);
    }

    #[test]
    fn an_error_does_not_quote_the_url() {
        let cases =
            ["redis://user:hunter2@:x:/", "rediss://user:hunter2@:x:/", "hunter2", "redis://u:hunter2@h/db"];
        for written in cases {
            let error = written.parse::<RedisUrl>().expect_err("invalid");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn invalid_urls_are_refused() {
        let cases = [
            "",
            "127.0.0.1:6379",
            "http://host",
            "redis://",
            "redis:host",
            "redis://:6379",
            "redis://user:secret@",
            "redis://host:port",
            "redis://host:0",
            "redis://host:70000",
            "redis://host/database",
            "redis://host/1/2",
            "redis://ho st",
            "redis://host/\t1",
            "redis://app:2024#hunter2@host",
            "redis://app:2024?hunter2@host",
            "redis+unix://",
            "redis+unix:///",
            "redis+unix://relative/path",
        ];
        for written in cases {
            assert_eq!(written.parse::<RedisUrl>(), Err(RedisUrlError), "{written}");
        }
    }
}
