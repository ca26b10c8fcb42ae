//! Where a node of a cluster or the primary of sentinels listens, and which slot a key has. Knows nothing of
//! connections.

use std::fmt;
use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: the checksum of the text between its first `{` and the next `}`, or of the whole key if there is
/// no such text.
pub(crate) fn slot_of_key(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    CRC.checksum(hashed.as_bytes()) % SLOTS
}

/// A hash tag for keys of this slot: a number whose decimal text has the slot.
pub(crate) fn tag_for_slot(slot: u16) -> u32 {
    static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let (mut tags, mut found) = (vec![None; usize::from(SLOTS)], 0);
        // A test shows that every slot has a number below 10^6.
        for number in 0..1_000_000 {
            let tag = &mut tags[usize::from(slot_of_key(&number.to_string()))];
            found += usize::from(tag.is_none());
            tag.get_or_insert(number);
            if found == usize::from(SLOTS) {
                break;
            }
        }
        tags.into_iter().map(Option::unwrap_or_default).collect()
    });
    TAGS[usize::from(slot % SLOTS)]
}

/// The address at which a node listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// A name or an IP address without brackets. Empty: the host of the node that reported the address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Parses `host:port`; the host may contain colons (IPv6), and may be empty.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self { host: known_host(host).to_owned(), port: port.parse().ok().filter(|&port| port > 0)? })
    }

    /// The address with an empty host replaced by the host of the node that reported it.
    pub(crate) fn reported_by(mut self, node: &Self) -> Self {
        if self.host.is_empty() {
            self.host.clone_from(&node.host);
        }
        self
    }
}

/// The host; empty for `?`, which nodes that do not know their own name report.
pub(crate) fn known_host(host: &str) -> &str {
    if host == "?" { "" } else { host }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As `CLUSTER KEYSLOT` of Redis 7.0 gives them.
        let table = [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("foo{bar}", 5_061),
            ("bar", 5_061),
            ("{bar}#x", 5_061),
            ("foo{}{bar}", 8_363), // an empty tag is none
            ("foo{{bar}}zap", 4_015),
        ];
        for (key, expected) in table {
            assert_eq!(slot_of_key(key), expected, "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        assert!(
            (0..SLOTS).all(|number| slot_of_key(&format!("any{{{}}}thing", tag_for_slot(number))) == number)
        );
    }

    #[test]
    fn addresses_are_parsed_as_nodes_write_them() {
        let read = |text| Address::parse(text).map(|address| (address.host, address.port));
        assert_eq!(read("10.0.0.1:7000"), Some(("10.0.0.1".to_owned(), 7_000)));
        assert_eq!(read("fe80::1:7000"), Some(("fe80::1".to_owned(), 7_000)));
        assert_eq!(read("[fe80::1]:7000"), Some(("fe80::1".to_owned(), 7_000)));
        assert_eq!(read(":7000"), Some((String::new(), 7_000)));
        assert_eq!(read("?:7000"), Some((String::new(), 7_000)));
        for nonsense in ["", "host", "host:", "host:0", "host:70000"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
