//! Where and how metrics are sent, and under which names. For DogStatsD, mogrifiers turn parts of a name into tags; as
//! in envoyproxy/ratelimit, the first one whose pattern is found anywhere in the name applies.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::{Captures, Regex};
use strum::{EnumString, VariantNames};

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
    /// Interval between two flushes of counters and gauges.
    pub flush_interval: Duration,
    /// Tags of every metric, as names and values.
    pub tags: Vec<(String, String)>,
    /// DogStatsD only.
    pub mogrifiers: Mogrifiers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsdTarget {
    /// Host and port.
    Tcp(String),
    /// Host and port.
    Udp(String),
    /// Absolute path of a Unix datagram socket.
    Unix(PathBuf),
}

impl StatsdTarget {
    /// Parses `tcp://host:port`, `udp://host:port` or `unix:///path`.
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
    // The colons of an IPv6 address are in brackets.
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

/// Rewrites the names that match its pattern.
#[derive(Clone, Debug)]
pub struct Mogrifier {
    pub pattern: Regex,
    /// `$0` to `$9` are the pattern's groups.
    pub name: String,
    /// Names and values; both can contain groups.
    pub tags: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default)]
pub struct Mogrifiers(pub Vec<Mogrifier>);

/// Mogrifiers are equal if they are written the same.
impl PartialEq for Mogrifiers {
    fn eq(&self, other: &Self) -> bool {
        let texts = |all: &Self| -> Vec<_> {
            let text =
                |one: &Mogrifier| (one.pattern.as_str().to_owned(), one.name.clone(), one.tags.clone());
            all.0.iter().map(text).collect()
        };
        texts(self) == texts(other)
    }
}

impl Eq for Mogrifiers {}

pub(super) type Named = (String, Vec<(String, String)>);

impl Mogrifiers {
    pub(super) fn apply(&self, name: &str) -> Option<Named> {
        let (mogrifier, groups) = self.0.iter().find_map(|one| Some((one, one.pattern.captures(name)?)))?;
        let tags =
            mogrifier.tags.iter().map(|(tag, value)| (expanded(tag, &groups), expanded(value, &groups)));
        Some((expanded(&mogrifier.name, &groups), tags.collect()))
    }
}

/// Replaces `$0` to `$9` with the groups. A missing group stays as written.
fn expanded(template: &str, groups: &Captures<'_>) -> String {
    let mut parts = template.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digit = part.chars().next().and_then(|first| first.to_digit(10));
        match digit.filter(|&digit| (digit as usize) < groups.len()) {
            Some(digit) => {
                text.push_str(groups.get(digit as usize).map_or("", |group| group.as_str()));
                text.push_str(&part[1..]);
            }
            None => {
                text.push('$');
                text.push_str(part);
            }
        }
    }
    text
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

    fn owned(tags: &[(&str, &str)]) -> Vec<(String, String)> {
        tags.iter().map(|&(tag, value)| (tag.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn the_first_pattern_that_is_found_rewrites_the_name() {
        let mogrifier = |pattern, name: &str, tags: &[(&str, &str)]| Mogrifier {
            pattern: Regex::new(pattern).expect("valid"),
            name: name.to_owned(),
            tags: owned(tags),
        };
        let templates = [("first", "$1"), ("all", "$0"), ("none", "$9"), ("$2", "x")];
        let mogrifiers = Mogrifiers(vec![
            mogrifier(r"^a\.(\w+)\.(\w+)$", "new.$2", &templates),
            mogrifier("b", "$x$", &[]),
        ]);
        let tags = owned(&[("first", "b"), ("all", "a.b.c"), ("none", "$9"), ("c", "x")]);
        assert_eq!(mogrifiers.apply("a.b.c"), Some(("new.c".to_owned(), tags)));
        assert_eq!(mogrifiers.apply("cbc"), Some(("$x$".to_owned(), Vec::new())));
        assert_eq!(mogrifiers.apply("x.y"), None);
    }
}
