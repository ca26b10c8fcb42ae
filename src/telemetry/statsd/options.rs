//! Where metrics are sent, and how.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strum::{EnumString, VariantNames};

use super::mogrifier::Mogrifiers;

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum StatsdFormat {
    /// Tags are parts of the names.
    Statsd,
    /// Tags follow the values.
    DogStatsd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdOptions {
    pub target: StatsdTarget,
    pub format: StatsdFormat,
    /// The time between two flushes of counters and gauges.
    pub flush_interval: Duration,
    /// The names and values of the tags of every metric.
    pub tags: Vec<(String, String)>,
    /// Only DogStatsD has them.
    pub mogrifiers: Mogrifiers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsdTarget {
    /// Host and port.
    Tcp(String),
    /// Host and port.
    Udp(String),
    /// The absolute path of a Unix datagram socket.
    Unix(PathBuf),
}

impl StatsdTarget {
    /// Parses `tcp://host:port`, `udp://host:port` or `unix:///path`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, place) = text.split_once("://")?;
        match scheme {
            "tcp" => has_port(place).then(|| Self::Tcp(place.to_owned())),
            "udp" => has_port(place).then(|| Self::Udp(place.to_owned())),
            "unix" => Path::new(place).is_absolute().then(|| Self::Unix(PathBuf::from(place))),
            _ => None,
        }
    }
}

fn has_port(place: &str) -> bool {
    let Some((host, port)) = place.rsplit_once(':') else { return false };
    // The colons of an address of IPv6 are in brackets.
    let is_host = match host.strip_prefix('[') {
        Some(address) => address.ends_with(']'),
        None => !host.is_empty() && !host.contains([':', '/']),
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl fmt::Display for StatsdTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => write!(f, "tcp://{place}"),
            Self::Udp(place) => write!(f, "udp://{place}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_scheme_and_a_place() {
        for text in
            ["tcp://statsd:8125", "udp://10.0.0.1:8125", "udp://[::1]:8125", "unix:///var/run/dsd.socket"]
        {
            assert_eq!(StatsdTarget::parse(text).map(|target| target.to_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "statsd:8125",
            "tcp://statsd",
            "tcp://:8125",
            "udp://::1:8125",
            "udp://a:0",
            "unix://dsd",
            "http://a:1",
        ] {
            assert_eq!(StatsdTarget::parse(text), None, "{text}");
        }
    }
}
