//! The address of a Redis server. It may hold a password, so it shows itself without one.

use std::fmt;

/// The schemes and whether they mean TLS.
const SCHEMES: [(&str, bool); 4] =
    [("redis://", false), ("rediss://", true), ("redis+unix://", false), ("unix://", false)];

/// Where Redis is. `Debug` and `Display` leave out user, password and parameters.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    text: String,
    scheme: &'static str,
    is_tls: bool,
}

impl RedisUrl {
    /// Understands `redis://` and `rediss://` with a host, and `redis+unix://` or `unix://` with an absolute path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, is_tls) = SCHEMES.into_iter().find(|(scheme, _)| text.starts_with(scheme))?;
        let url = Self { text: text.to_owned(), scheme, is_tls };
        let place = url.place();
        // Where a password is not encoded, what stands behind its `?` or `#` would be taken for something else.
        let (_, behind) = text.split_once(['?', '#']).unwrap_or_default();
        let is_whole = if scheme.contains("unix") {
            place.len() > 1 && place.starts_with('/')
        } else {
            is_host_and_database(place) && !behind.contains('@')
        };
        (is_whole && !text.contains(char::is_whitespace)).then_some(url)
    }

    /// The whole URL, for the client alone: it may hold a password.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Whether it leads to a socket of this machine.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.scheme.contains("unix")
    }

    /// Whether it names a database other than 0.
    #[must_use]
    pub fn names_database(&self) -> bool {
        let database = self.place().split_once('/').map_or("", |(_, database)| database);
        !self.is_socket() && database.parse::<u32>().is_ok_and(|number| number > 0)
    }

    /// Whether it asks for TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Host, port and database, or the path: nothing secret.
    fn place(&self) -> &str {
        let rest = &self.text[self.scheme.len()..];
        let (rest, _) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
        // A password may hold an `@` of its own; a host may not.
        rest.rsplit_once('@').map_or(rest, |(_, place)| place)
    }
}

/// `host[:port][/database]`.
fn is_host_and_database(place: &str) -> bool {
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return false;
    }
    // A colon inside brackets belongs to an IPv6 address.
    let host_ends = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority[host_ends..].split_once(':') {
        Some((host, port)) => host_ends + host.len() > 0 && port.parse::<u16>().is_ok_and(|port| port > 0),
        None => !authority.is_empty(),
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.scheme, self.place())
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
    fn addresses_that_can_be_used() {
        let cases = [
            // (written, shown)
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
        for (written, shown) in cases {
            let url = RedisUrl::parse(written).unwrap_or_else(|| panic!("{written} is an address"));
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("RedisUrl({shown})"));
            assert_eq!(url.expose(), written);
        }
    }

    #[test]
    fn addresses_that_cannot() {
        let cases = [
            "",
            "127.0.0.1:6379",
            "http://host",
            "redis://",
            "redis://:6379",
            "redis://user:secret@",
            "redis://host:port",
            "redis://host:0",
            "redis://host:70000",
            "redis://host/database",
            "redis://ho st",
            "redis://app:2024#hunter2@host",
            "redis://app:2024?hunter2@host",
            "redis+unix://",
            "redis+unix:///",
            "redis+unix://relative/path",
        ];
        for written in cases {
            assert_eq!(RedisUrl::parse(written), None, "{written}");
        }
    }
}
