//! Builds one entry of a descriptor from the value of a field.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use super::expression::{Expression, FieldIndex};
use crate::values::Selected;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorRule {
    /// Only requests that meet this condition have the descriptor.
    pub when: Option<Expression>,
    pub entries: Vec<EntryRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryRule {
    pub key: String,
    pub source: EntrySource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntrySource {
    Constant(String),
    Field { field: FieldIndex, steps: Vec<Step>, default: Option<String> },
}

/// A transformation of the value, in map order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The address that the N-th trusted proxy from the end appended to a list such as `x-forwarded-for`; 1 is the
    /// last. A shorter list gives no value: a client may have written all of it.
    TrustedHop(usize),
    /// The first value of a list.
    First,
    /// Removes everything from `?` or `#` on.
    StripQuery,
    StripPort,
    /// The network of a client address without port and zone: this many bits of IPv6, all of IPv4. Anything else gives
    /// no value.
    Network(u8),
    Lowercase,
    /// Replaces the value by the first matching pattern.
    Templates(Vec<PathTemplate>),
}

/// A path in which `*` is one segment, and `**` at the end one or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathTemplate {
    pub text: String,
}

impl EntryRule {
    /// `None` if the line has no value.
    pub fn value<'v>(&'v self, line: &'v Selected<'_>) -> Option<Cow<'v, str>> {
        match &self.source {
            EntrySource::Constant(text) => Some(Cow::Borrowed(text)),
            EntrySource::Field { field, steps, default } => {
                let value = line[field.0].as_deref().and_then(|value| {
                    steps.iter().try_fold(Cow::Borrowed(value), |value, step| step.apply(value))
                });
                value.or(default.as_deref().map(Cow::Borrowed))
            }
        }
    }
}

impl Step {
    /// `true` if the step may turn a value into none.
    pub fn may_have_none(&self) -> bool {
        matches!(self, Self::TrustedHop(_) | Self::Network(_))
    }

    fn apply<'v>(&'v self, value: Cow<'v, str>) -> Option<Cow<'v, str>> {
        match self {
            Self::TrustedHop(hop) => part(value, |value| {
                value.rsplit(',').nth(hop - 1).map(str::trim).filter(|hop| !hop.is_empty())
            }),
            Self::First => part(value, |value| value.split(',').next().map(str::trim)),
            Self::StripQuery => part(value, |value| value.split(['?', '#']).next()),
            Self::StripPort => part(value, |value| Some(without_port(value))),
            Self::Network(bits) => {
                let address = part(value, |value| without_port(value).split('%').next())?;
                Some(match network_of(address.parse().ok()?, *bits) {
                    IpAddr::V4(_) if !address.contains(':') => address,
                    network => Cow::Owned(network.to_string()),
                })
            }
            Self::Lowercase => Some(lowercase(value)),
            Self::Templates(templates) => {
                let matching = templates.iter().find(|template| template.matches(&value));
                Some(matching.map_or(value, |template| Cow::Borrowed(template.text.as_str())))
            }
        }
    }
}

fn lowercase(value: Cow<'_, str>) -> Cow<'_, str> {
    if value.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(value.to_ascii_lowercase());
    }
    value
}

/// Normalizes a host: in lower case, without port and final dot. `None` if nothing is left.
pub(crate) fn one_host(host: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let name = part(host, |host| Some(without_port(host).trim_end_matches('.')));
    name.filter(|name| !name.is_empty()).map(lowercase)
}

/// A part of a value, borrowed if the value is.
fn part<'v>(value: Cow<'v, str>, take: impl Fn(&str) -> Option<&str>) -> Option<Cow<'v, str>> {
    match value {
        Cow::Borrowed(value) => take(value).map(Cow::Borrowed),
        Cow::Owned(value) => take(&value).map(|part| Cow::Owned(part.to_owned())),
    }
}

/// `192.0.2.1:80` and `[2001:db8::1]:80` without the port; `2001:db8::1` unchanged.
fn without_port(value: &str) -> &str {
    if let Some((address, _)) = value.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        return address;
    }
    match value.split_once(':') {
        Some((address, port)) if !port.contains(':') => address,
        _ => value,
    }
}

/// Treats an IPv4-mapped IPv6 address as IPv4.
fn network_of(address: IpAddr, bits: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl PathTemplate {
    fn matches(&self, value: &str) -> bool {
        let mut segments = value.split('/');
        for expected in self.text.split('/') {
            if expected == "**" {
                return segments.next().is_some();
            }
            match segments.next() {
                Some(segment) if expected == segment || expected == "*" && !segment.is_empty() => {}
                _ => return false,
            }
        }
        segments.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(step: &Step, value: &str) -> Option<String> {
        step.apply(Cow::Borrowed(value)).map(Cow::into_owned)
    }

    #[test]
    fn values_are_changed_as_the_steps_say() {
        let templates =
            ["/users/*", "/export/**", "/a/*/b"].map(|text| PathTemplate { text: text.to_owned() });
        let templates = Step::Templates(templates.to_vec());
        let table = [
            (&Step::TrustedHop(1), "10.0.0.1, 192.0.2.7", Some("192.0.2.7")),
            (&Step::TrustedHop(2), "10.0.0.1, 192.0.2.7", Some("10.0.0.1")),
            // Fewer addresses than proxies: none can be trusted.
            (&Step::TrustedHop(3), "10.0.0.1, 192.0.2.7", None),
            (&Step::TrustedHop(1), "192.0.2.7", Some("192.0.2.7")),
            (&Step::TrustedHop(1), "192.0.2.7,", None),
            (&Step::First, "a, b", Some("a")),
            (&Step::StripQuery, "/a?b#c", Some("/a")),
            (&Step::StripQuery, "/a", Some("/a")),
            (&Step::StripPort, "192.0.2.7:443", Some("192.0.2.7")),
            (&Step::StripPort, "[2001:db8::1]:443", Some("2001:db8::1")),
            (&Step::StripPort, "2001:db8::1", Some("2001:db8::1")),
            (&Step::Network(64), "192.0.2.1", Some("192.0.2.1")),
            (&Step::Network(64), "192.0.2.1:80", Some("192.0.2.1")),
            (&Step::Network(64), "[::ffff:192.0.2.1]:80", Some("192.0.2.1")),
            (&Step::Network(64), "2001:DB8:0:1::1", Some("2001:db8:0:1::")),
            (&Step::Network(64), "[2001:db8:0:1:2::3]:443", Some("2001:db8:0:1::")),
            (&Step::Network(48), "2001:db8:0:1::1", Some("2001:db8::")),
            (&Step::Network(128), "2001:db8:0:1:0::1", Some("2001:db8:0:1::1")),
            (&Step::Network(1), "2001:db8::1", Some("::")),
            (&Step::Network(64), "fe80::1%eth0", Some("fe80::")),
            (&Step::Network(64), "010.0.0.1", None),
            (&Step::Network(64), "unknown", None),
            (&Step::Network(64), "192.0.2.1, 192.0.2.2", None),
            (&Step::Lowercase, "ExAmple", Some("example")),
            (&templates, "/users/17", Some("/users/*")),
            (&templates, "/users/", Some("/users/")),
            (&templates, "/users/17/posts", Some("/users/17/posts")),
            (&templates, "/export/a/b", Some("/export/**")),
            (&templates, "/export", Some("/export")),
            (&templates, "/a/1/b", Some("/a/*/b")),
        ];
        for (step, value, expected) in table {
            assert_eq!(applied(step, value).as_deref(), expected, "{step:?} {value}");
        }
    }
}
