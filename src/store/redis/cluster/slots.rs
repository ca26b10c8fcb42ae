//! Which slot a key has, and which node has which slot, as the nodes tell it. Knows nothing of connections.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};
use redis::Value;

use crate::engine::StoreError;

/// Slots of a cluster.
pub(in super::super) const SLOTS: u16 = 16_384;

const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: of what stands between its first `{` and the next `}`, where there is anything.
pub(in super::super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    CRC.checksum(hashed.as_bytes()) % SLOTS
}

/// A number that has this slot, in braces and in decimal.
pub(in super::super) fn tag(of: u16) -> u32 {
    static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let (mut tags, mut found) = (vec![None; usize::from(SLOTS)], 0);
        // Every slot has one below 10^6, as a test shows: the checksum spreads well.
        for number in 0..1_000_000 {
            let place = &mut tags[usize::from(slot(&number.to_string()))];
            found += usize::from(place.is_none());
            place.get_or_insert(number);
            if found == usize::from(SLOTS) {
                break;
            }
        }
        tags.into_iter().map(Option::unwrap_or_default).collect()
    });
    TAGS[usize::from(of % SLOTS)]
}

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Address {
    /// A name or an IP address without brackets. Empty: the host of whoever named it.
    pub(in super::super) host: String,
    pub(in super::super) port: u16,
}

impl Address {
    /// Understands `host:port`; the host may hold colons, and may be missing.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self { host: known(host).to_owned(), port: port.parse().ok().filter(|&port| port > 0)? })
    }

    /// The address as whoever asked `teller` is to use it.
    pub(in super::super) fn told_by(mut self, teller: &Self) -> Self {
        if self.host.is_empty() {
            self.host.clone_from(&teller.host);
        }
        self
    }
}

/// Nodes that do not know their own name say `?`.
fn known(host: &str) -> &str {
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

/// Slots and the primary that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Range {
    pub(in super::super) slots: RangeInclusive<u16>,
    pub(in super::super) primary: Address,
}

/// Reads the answer of `teller` to `CLUSTER SLOTS`.
///
/// # Errors
/// [`StoreError::Malformed`] where it is none; [`StoreError::Refused`] where the node knows of no slots.
pub(in super::super) fn layout(answer: &Value, teller: &Address) -> Result<Vec<Range>, StoreError> {
    let Value::Array(ranges) = answer else { return Err(malformed()) };
    if ranges.is_empty() {
        return Err(StoreError::Refused("the node knows of no slots".to_owned()));
    }
    ranges.iter().map(|told| range(told, teller).ok_or_else(malformed)).collect()
}

/// First slot, last slot, the primary and then the replicas, each as host, port and more.
fn range(told: &Value, teller: &Address) -> Option<Range> {
    let Value::Array(parts) = told else { return None };
    let [first, last, Value::Array(primary), ..] = parts.as_slice() else { return None };
    let [host, port, ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => return None,
    };
    let port = number(port).filter(|&port| port > 0)?;
    let (first, last) = (number(first)?, number(last).filter(|&last| last < SLOTS)?);
    let primary = Address { host: known(host).to_owned(), port }.told_by(teller);
    Some(Range { slots: first..=last, primary })
}

fn number(value: &Value) -> Option<u16> {
    if let Value::Int(number) = value { u16::try_from(*number).ok() } else { None }
}

fn malformed() -> StoreError {
    StoreError::Malformed("no answer to CLUSTER SLOTS".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
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
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        assert!((0..SLOTS).all(|number| slot(&format!("any{{{}}}thing", tag(number))) == number));
    }

    #[test]
    fn addresses_are_read_as_nodes_write_them() {
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

    #[test]
    fn a_layout_is_read_whatever_more_the_nodes_tell() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| {
            Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![text("ip"), text("x")])])
        };
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        let teller = Address { host: "seed".to_owned(), port: 1 };
        let answer = Value::Array(vec![
            range(0, 5, vec![node(text("a"), 7_000), node(text("b"), 7_001)]),
            range(6, 16_383, vec![node(Value::Nil, 7_002)]),
        ]);
        let primaries: Vec<_> = layout(&answer, &teller)
            .expect("a good answer")
            .into_iter()
            .map(|range| (range.slots, range.primary.to_string()))
            .collect();
        assert_eq!(primaries, [(0..=5, "a:7000".to_owned()), (6..=16_383, "seed:7002".to_owned())]);

        assert!(matches!(layout(&Value::Array(vec![]), &teller), Err(StoreError::Refused(_))));
        for nonsense in
            [Value::Nil, Value::Array(vec![Value::Int(3)]), Value::Array(vec![range(0, 16_384, vec![])])]
        {
            assert!(matches!(layout(&nonsense, &teller), Err(StoreError::Malformed(_))), "{nonsense:?}");
        }
    }
}
