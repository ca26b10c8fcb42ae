//! The columns of a row as strings, and what they may contain.

use std::net::IpAddr;
use std::sync::Arc;

use engine::{Network, RowValue};
use jiff::Timestamp;

pub(super) const COLUMNS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "path",
    "limit_name",
    "tier",
    "limit",
    "multiplier",
    "add",
    "block",
    "exempt",
    "shadow_mode",
    "from",
    "until",
    "reason",
    "by",
];

/// The largest limit or grant.
pub(super) const MAX_UNITS: u64 = 1 << 52;

pub(super) fn wrong_units(name: &str, least: i128) -> String {
    format!("'{name}' must be a whole number from {least} to {MAX_UNITS}")
}

/// Parses `from` or `until` to microseconds since the epoch: RFC 3339, also with a space for the `T`, in lower case,
/// and with up to nine decimals of a second, of which six are used.
///
/// # Errors
/// What to write instead.
pub(super) fn parse_time(name: &str, text: &str) -> Result<u64, String> {
    // The parser also accepts formats that only look like a time with a zone.
    let has_rfc3339_letters = text.bytes().all(|byte| {
        byte.is_ascii_digit() || matches!(byte, b'-' | b':' | b'.' | b'+' | b' ' | b'T' | b't' | b'Z' | b'z')
    });
    let time: Option<Timestamp> = has_rfc3339_letters.then(|| text.parse().ok()).flatten();
    let time_us = time.and_then(|time| u64::try_from(time.as_microsecond()).ok());
    time_us.ok_or_else(|| {
        format!("'{name}' must be a time with a UTC offset, such as 2026-12-01T00:00:00Z or 2026-12-01T01:00:00+01:00")
    })
}

/// Parses the value of a row: a network if written as one, or as one address.
///
/// # Errors
/// Why the value looks like a network but is invalid.
pub(super) fn parse_value(text: &str) -> Result<RowValue, String> {
    if let Ok(address) = text.parse() {
        return Ok(RowValue::Network(Network::of_address(address)));
    }
    if !looks_like_network(text) {
        return Ok(RowValue::Exact(Arc::from(text)));
    }
    let network: Result<Network, _> = text.parse();
    network.map(RowValue::Network).map_err(|error| format!("'value': {error}"))
}

/// `true` if a network was probably meant: an address, or digits with dots or colons, before a slash.
pub(super) fn looks_like_network(text: &str) -> bool {
    let Some((address, _)) = text.split_once('/') else { return false };
    let is_like_v4 = address.matches('.').count() == 3
        && address.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_like_v6 = address.matches(':').count() >= 2
        && address.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
    is_like_v4 || is_like_v6 || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_row_is_a_time_of_rfc_3339() {
        let table = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-12-01T00:00:00Z", Some(1_796_083_200_000_000)),
            ("2026-12-01T01:00:00+01:00", Some(1_796_083_200_000_000)),
            ("2026-12-01 00:00:00z", Some(1_796_083_200_000_000)),
            ("2026-12-01t00:00:00.123456789Z", Some(1_796_083_200_123_456)),
            ("2026-12-01T00:00:00", None),
            ("2026-12-01", None),
            ("2026-02-30T00:00:00Z", None),
            ("2026-12-01T00:00:00[Europe/Berlin]", None),
            ("2026-12-01T00:00:00Z[Europe/Berlin]", None),
            ("1969-12-31T23:59:59Z", None),
            ("tomorrow", None),
            ("1796083200", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_time("until", text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn networks_are_told_from_other_values_with_a_slash() {
        for (text, expected) in [
            ("10.0.0.0/8", "Ok(Network"),
            ("2001:db8::/32", "Ok(Network"),
            ("10.0.0.7", "Ok(Network"),
            ("2001:DB8::1", "Ok(Network"),
            ("10.0.0.7:80", "Ok(Exact"),
            ("1.2.3", "Ok(Exact"),
            ("/api/v1", "Ok(Exact"),
            ("v1.2.3.4/8", "Ok(Exact"),
            ("1.2/3", "Ok(Exact"),
            ("acme/prod", "Ok(Exact"),
            ("10.0.0.0/33", "Err("),
            ("10.0.0.300/8", "Err("),
            ("10.0.0.0/", "Err("),
            ("2001:db8::g/32", "Ok(Exact"),
            ("2001:db8::/129", "Err("),
            ("10.1.2.3/8", "Err(\"'value': the address has bits after the prefix; the network is 10.0.0.0/8"),
        ] {
            let parsed = format!("{:?}", parse_value(text));
            assert!(parsed.starts_with(expected), "{text}: {parsed}");
        }
    }
}
