//! Networks as values of exceptions, and the look-up of an address in them.
//!
//! An IPv4-mapped IPv6 address (`::ffff:10.0.0.7`, as dual-stack listeners write it) counts as IPv4. Otherwise the
//! families are separate: `::/0` contains no IPv4 address, `0.0.0.0/0` no IPv6 address. Ports, brackets and zones in a
//! request's value, as proxies write them, are ignored.

use std::cmp::Reverse;
use std::fmt;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use hashbrown::HashMap;
use smallvec::SmallVec;

/// The precision of a value that is not a network: above any prefix length.
pub(super) const EXACT: u8 = u8::MAX;

/// A range of IPv4 or IPv6 addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    first: Address,
    prefix_len: u8,
}

/// An address, with IPv4 separate from IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Address {
    /// Big-endian and left-aligned. Bytes, because an integer of 128 bits would align rows to 16 bytes.
    bytes: [u8; 16],
    is_v4: bool,
}

/// Extracts the address from a request value: `10.0.0.7`, `10.0.0.7:1234`, `2001:db8::1`, `[2001:db8::1]:80`,
/// `fe80::1%eth0`. An IPv4-mapped IPv6 address becomes IPv4.
pub fn address_of(text: &str) -> Option<IpAddr> {
    // Most values are not addresses, and their first byte shows it.
    if !text.starts_with(|first: char| first.is_ascii_hexdigit() || first == ':' || first == '[') {
        return None;
    }
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            v6_of(inside).filter(|_| after.is_empty() || after.strip_prefix(':').is_some_and(is_port))
        }
        None => v6_of(text).or_else(|| {
            let (host, port) = text.split_once(':').unwrap_or((text, "0"));
            host.parse().ok().map(IpAddr::V4).filter(|_| is_port(port))
        }),
    };
    address.map(|address| address.to_canonical())
}

/// An IPv6 address, perhaps with its zone.
fn v6_of(text: &str) -> Option<IpAddr> {
    let (address, zone) = text.split_once('%').unwrap_or((text, "-"));
    address.parse().ok().map(IpAddr::V6).filter(|_| !zone.is_empty())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("not a network such as 10.0.0.0/8 or 2001:db8::/32")]
    NotANetwork,
    /// Probably a typo: the network differs from the one written.
    #[error("the address has bits after the prefix; the network is {0}")]
    HostBits(Network),
}

impl Address {
    fn new(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::of_bits(u128::from(v4.to_bits()) << 96, true),
            IpAddr::V6(v6) => Self::of_bits(v6.to_bits(), false),
        }
    }

    fn of_bits(bits: u128, is_v4: bool) -> Self {
        Self { bytes: bits.to_be_bytes(), is_v4 }
    }

    fn bits(self) -> u128 {
        u128::from_be_bytes(self.bytes)
    }

    /// Clears all bits after the prefix.
    fn masked(self, prefix_len: u8) -> Self {
        let mask = u128::MAX.checked_shl(u128::BITS - u32::from(prefix_len)).unwrap_or(0);
        Self::of_bits(self.bits() & mask, self.is_v4)
    }
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = Address::new(address);
        address.is_v4 == self.first.is_v4 && address.masked(self.prefix_len) == self.first
    }

    /// The network that contains only this address.
    pub fn of_address(address: IpAddr) -> Self {
        let first = Address::new(address);
        Self { first, prefix_len: if first.is_v4 { 32 } else { 128 } }
    }

    /// In bits.
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, len) = text.split_once('/').ok_or(NetworkError::NotANetwork)?;
        let address: IpAddr = address.parse().map_err(|_| NetworkError::NotANetwork)?;
        let is_number = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
        let len: u8 = len.parse().ok().filter(|_| is_number).ok_or(NetworkError::NotANetwork)?;
        let first = Address::new(address);
        let prefix_len = match (address, first.is_v4) {
            // Part of `::ffff:0:0/96`, whose addresses are IPv4 addresses.
            (IpAddr::V6(_), true) => len.checked_sub(96).ok_or(NetworkError::NotANetwork)?,
            _ => len,
        };
        if prefix_len > if first.is_v4 { 32 } else { 128 } {
            return Err(NetworkError::NotANetwork);
        }
        let network = Self { first: first.masked(prefix_len), prefix_len };
        if network.first == first { Ok(network) } else { Err(NetworkError::HostBits(network)) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.first.bits();
        if self.first.is_v4 {
            // Exact: an IPv4 address has its bits in the upper 32.
            write!(f, "{}/{}", Ipv4Addr::from_bits((bits >> 96) as u32), self.prefix_len)
        } else {
            write!(f, "{}/{}", Ipv6Addr::from_bits(bits), self.prefix_len)
        }
    }
}

/// Returns the networks with these prefix lengths that contain the address in `text`, in the order of `prefix_lens`.
/// Adds each network's precision: the prefix length, or [`EXACT`] for this address alone.
pub(super) fn networks_of(
    text: &str,
    mut prefix_lens: impl ExactSizeIterator<Item = u8>,
) -> impl Iterator<Item = (u8, Network)> {
    let address = if prefix_lens.len() == 0 { None } else { address_of(text).map(Address::new) };
    iter::from_fn(move || {
        let (address, prefix_len) = (address?, prefix_lens.next()?);
        let whole = if address.is_v4 { 32 } else { 128 };
        let precision = if prefix_len == whole { EXACT } else { prefix_len };
        Some((precision, Network { first: address.masked(prefix_len), prefix_len }))
    })
}

/// The rows of networks, by row index.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    /// Longest first.
    prefix_lens: Vec<u8>,
    rows: HashMap<Network, SmallVec<[u32; 1]>>,
}

impl Networks {
    pub(super) fn insert(&mut self, network: Network, row: u32) {
        let len = network.prefix_len;
        if let Err(index) = self.prefix_lens.binary_search_by_key(&Reverse(len), |len| Reverse(*len)) {
            self.prefix_lens.insert(index, len);
        }
        self.rows.entry(network).or_default().push(row);
    }

    /// Returns the rows of networks that contain the address in `text`, longest prefix first, with their precision.
    pub(super) fn rows_of(&self, text: &str) -> impl Iterator<Item = (u8, u32)> {
        networks_of(text, self.prefix_lens.iter().copied()).flat_map(|(precision, network)| {
            self.rows.get(&network).into_iter().flatten().map(move |row| (precision, *row))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn networks_are_read_and_written() {
        let table = [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("10.0.0.7/32", "10.0.0.7/32"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("::1/128", "::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ];
        for (text, shown) in table {
            assert_eq!(network(text).to_string(), shown, "{text}");
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/+8",
            "a/8",
            "::ffff:0:0/95",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError::NotANetwork), "{text:?}");
        }
        let host_bits = "10.0.0.7/8".parse::<Network>();
        assert_eq!(host_bits, Err(NetworkError::HostBits(network("10.0.0.0/8"))));
    }

    #[test]
    fn a_network_has_its_addresses_however_they_are_written() {
        let table = [
            // network, address, whether the network contains it
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "::10.1.2.3", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("2001:db8::/32", "2001:0DB8::7", true),
            ("2001:db8::/33", "2001:db8:8000::", false),
            ("::/0", "10.0.0.1", false),
            ("::/0", "fe80::1", true),
            ("0.0.0.0/0", "fe80::1", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("10.0.0.7/32", "10.0.0.7", true),
            ("10.0.0.7/32", "10.0.0.6", false),
        ];
        for (text, address, expected) in table {
            let mut networks = Networks::default();
            networks.insert(network(text), 3);
            let found: Vec<_> = networks.rows_of(address).map(|(_, row)| row).collect();
            assert_eq!(found, if expected { vec![3] } else { Vec::new() }, "{address} in {text}");
            assert_eq!(network(text).contains(address.parse().expect("an address")), expected);
        }
        let mut networks = Networks::default();
        networks.insert(network("0.0.0.0/0"), 0);
        for text in ["", "localhost", "10.0.0.01", "10.0.0.0/8"] {
            assert_eq!(networks.rows_of(text).count(), 0, "{text:?} is no address");
        }
    }

    #[test]
    fn an_address_is_found_with_its_port_its_brackets_and_its_zone() {
        let table = [
            ("10.0.0.7", "10.0.0.7"),
            ("10.0.0.7:1234", "10.0.0.7"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("[::ffff:10.0.0.7]:80", "10.0.0.7"),
            ("2001:DB8:0::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25eth0]:80", "fe80::1"),
            ("::1", "::1"),
        ];
        for (text, address) in table {
            assert_eq!(address_of(text).map(|found| found.to_string()).as_deref(), Some(address), "{text}");
        }
        let others = [
            "",
            "acme",
            "a",
            ":",
            "[",
            "[]",
            "[]:80",
            "[10.0.0.7]",
            "[::1",
            "::1]",
            "[::1]x",
            "[::1]:",
            "[::1]:x",
            "[[::1]]",
            "[::1]:80:80",
            "10.0.0.7:",
            "10.0.0.7:x",
            "10.0.0.7:80:80",
            "10.0.0:80",
            "fe80::1%",
            "%eth0",
            "10.0.0.7%eth0",
            "10.0.0.7/32",
            "010.0.0.7",
            " 10.0.0.7",
            "é::1",
        ];
        for text in others {
            assert_eq!(address_of(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_longest_prefix_comes_first() {
        let mut networks = Networks::default();
        for (row, text) in
            ["10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "10.1.0.0/16", "10.2.0.0/16"].iter().enumerate()
        {
            networks.insert(network(text), u32::try_from(row).expect("a small number"));
        }
        let found: Vec<_> = networks.rows_of("10.1.2.3").collect();
        assert_eq!(found, [(16, 1), (16, 3), (8, 0), (0, 2)]);
    }
}
