//! Parsers of setting values. Each describes its accepted values, for errors and for the documentation.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use engine::Share;
use strum::VariantNames;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::net::ListenAddress;

/// Shown instead of a secret.
const MASKED: &str = "(secret)";

pub(super) struct Parser<T> {
    /// Accepted values, for errors and for the documentation.
    pub(super) expected: String,
    /// `true` if errors must not quote the value.
    pub(super) is_secret: bool,
    /// Masks a secret value.
    mask: Option<fn(&str) -> String>,
    parse: ParseText<T>,
}

type ParseText<T> = Box<dyn Fn(&str) -> Option<T>>;

impl<T> Parser<T> {
    pub(super) fn new(expected: impl Into<String>, parse: impl Fn(&str) -> Option<T> + 'static) -> Self {
        Self { expected: expected.into(), is_secret: false, mask: None, parse: Box::new(parse) }
    }

    pub(super) fn secret(self) -> Self {
        self.secret_shown_as(|_| MASKED.to_owned())
    }

    /// `mask` removes the secret from a valid value.
    pub(super) fn secret_shown_as(self, mask: fn(&str) -> String) -> Self {
        Self { is_secret: true, mask: Some(mask), ..self }
    }

    /// Returns a valid value as it may be shown.
    pub(super) fn shown(&self, text: &str) -> String {
        match self.mask {
            Some(mask) if !text.is_empty() => mask(text),
            _ => text.to_owned(),
        }
    }

    pub(super) fn parse(&self, text: &str) -> Option<T> {
        (self.parse)(text)
    }
}

impl<T: 'static> Parser<T> {
    /// Also accepts the empty string, as `None`.
    pub(super) fn or_nothing(self) -> Parser<Option<T>> {
        self.or("", "nothing")
    }

    /// Also accepts `off`, as `None`.
    pub(super) fn or_off(self) -> Parser<Option<T>> {
        self.or("off", "off")
    }

    /// Also accepts `none`, which errors call `name`, as `None`.
    pub(super) fn or(self, none: &'static str, name: &str) -> Parser<Option<T>> {
        let Self { expected, is_secret, mask, parse } = self;
        let parse: ParseText<Option<T>> =
            Box::new(move |text| if text == none { Some(None) } else { parse(text).map(Some) });
        Parser { expected: format!("{expected}, or {name}"), is_secret, mask, parse }
    }
}

/// Values of one kind, separated by commas; empty: none.
pub(super) fn list<T: 'static>(
    nouns: &str,
    parse_one: impl Fn(&str) -> Option<T> + 'static,
) -> Parser<Vec<T>> {
    Parser::new(format!("{nouns} with commas between them, or nothing"), move |text| {
        text.split(',').filter(|_| !text.is_empty()).map(&parse_one).collect()
    })
}

/// Any string that is not empty.
pub(super) fn text<T: for<'t> From<&'t str>>(noun: &str) -> Parser<T> {
    Parser::new(noun, |text| (!text.is_empty()).then(|| text.into()))
}

/// A TCP address.
pub(super) fn tcp_address() -> Parser<ListenAddress> {
    let expected = "an IP address or a host name, and a port, like 0.0.0.0:8081, [::]:8081 or localhost:8081";
    Parser::new(expected, |text| match ListenAddress::parse(text) {
        Some(ListenAddress::Unix(_)) => None,
        parsed => parsed,
    })
}

/// A TCP address or a Unix socket.
pub(super) fn listen_address() -> Parser<ListenAddress> {
    let expected = "an IP address or a host name, and a port, like 0.0.0.0:8081, [::]:8081 or localhost:8081, or \
                    unix:/path/to/socket";
    Parser::new(expected, ListenAddress::parse)
}

/// A TCP address or a Unix socket; `off` is `None`.
pub(super) fn listen_address_or_off() -> Parser<Option<ListenAddress>> {
    let expected = "an IP address or a host name, and a port, like 127.0.0.1:6070, unix:/path/to/socket";
    Parser::new(expected, ListenAddress::parse).or_off()
}

/// Host names in lower case, without ports.
pub(super) fn host_names() -> Parser<Vec<String>> {
    list("host names without ports,", |name| {
        let name = name.trim();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (!name.is_empty() && name.bytes().all(is_plain)).then(|| name.to_ascii_lowercase())
    })
}

/// `true` or `false`, in the three spellings of YAML's core schema.
pub(super) fn flag() -> Parser<bool> {
    Parser::new("true or false", |text| match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    })
}

/// Variants of an enum.
pub(super) fn named<T: FromStr + VariantNames>() -> Parser<T> {
    Parser::new(format!("one of {}", T::VARIANTS.join(", ")), |text| text.parse().ok())
}

pub(super) fn one_of<T: Copy + 'static>(values: impl IntoIterator<Item = (&'static str, T)>) -> Parser<T> {
    let values: Vec<_> = values.into_iter().collect();
    let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
    let expected = format!("one of {}", names.join(", "));
    Parser::new(expected, move |text| {
        let (_, value) = values.iter().find(|(name, _)| *name == text)?;
        Some(*value)
    })
}

pub(super) fn count<T>(range: RangeInclusive<T>) -> Parser<T>
where
    T: Copy + Display + FromStr + PartialOrd + 'static,
{
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    Parser::new(expected, move |text| text.parse().ok().filter(|count| range.contains(count)))
}

pub(super) fn positive<T>(max: T) -> Parser<T>
where
    T: Copy + Display + FromStr + PartialOrd + From<u8> + 'static,
{
    count(T::from(1)..=max)
}

pub(super) fn nonzero_u32(max: u32) -> Parser<NonZeroU32> {
    let number = positive(max);
    Parser::new(number.expected.clone(), move |text| NonZeroU32::new(number.parse(text)?))
}

/// A duration in humantime's syntax, within bounds in the same syntax.
pub(super) fn duration(min: &'static str, max: &'static str) -> Parser<Duration> {
    let range = parse_bound(min)..=parse_bound(max);
    Parser::new(format!("a duration from {min} to {max}"), move |text| {
        humantime::parse_duration(text).ok().filter(|duration| range.contains(duration))
    })
}

/// A duration; `0s` is `None`.
pub(super) fn duration_or_never(min: &'static str, max: &'static str) -> Parser<Option<Duration>> {
    let some = duration(min, max);
    Parser::new(format!("{}, or 0s for never", some.expected), move |text| {
        match humantime::parse_duration(text) {
            Ok(Duration::ZERO) => Some(None),
            _ => some.parse(text).map(Some),
        }
    })
}

fn parse_bound(text: &str) -> Duration {
    humantime::parse_duration(text).expect("the bounds are constants: a test reads them all")
}

/// A share from 0 to 1 in millionths, exact because it is computed from the decimal digits.
pub(super) fn share() -> Parser<u32> {
    Parser::new(Share::EXPECTED, |text| Share::parse(text).map(Share::millionths))
}

/// The name of an HTTP header, spelled as sent.
pub(super) fn header_name() -> Parser<Arc<str>> {
    Parser::new("the name of a header", |text| {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        (!text.is_empty() && text.bytes().all(is_token)).then(|| text.into())
    })
}

/// The official name of a time zone; empty is `None`.
pub(super) fn time_zone() -> Parser<Option<Box<str>>> {
    let zone = Parser::new("a time zone such as UTC or Europe/Berlin", |text| {
        rules::time_zone_name(text).ok().map(Into::into)
    });
    zone.or_nothing()
}

/// A file path; empty is `None`.
pub(super) fn optional_path() -> Parser<Option<PathBuf>> {
    text("the path of a file").or_nothing()
}

/// The name that a server's certificate must have; empty is `None`.
pub(super) fn server_name() -> Parser<Option<ServerName<'static>>> {
    Parser::new("a host name or an IP address", |text| text.to_owned().try_into().ok()).or_nothing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_zone_has_its_official_spelling() {
        let parsed = |text| time_zone().parse(text).map(|zone| zone.map(String::from));
        assert_eq!(parsed(""), Some(None));
        assert_eq!(parsed("europe/berlin"), Some(Some("Europe/Berlin".to_owned())));
        assert_eq!((parsed("Berlin"), parsed("+01:00")), (None, None));
    }
}
