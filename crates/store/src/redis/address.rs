//! The address of a cluster node, or of the primary that sentinels report.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// Name or IP address without brackets. Empty: the host of the reporting node.
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

    /// Replaces an empty host with the reporting node's host.
    pub(crate) fn reported_by(mut self, node: &Self) -> Self {
        if self.host.is_empty() {
            self.host.clone_from(&node.host);
        }
        self
    }
}

/// Returns the host; empty for `?`, which stands for a node's own unknown name.
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
