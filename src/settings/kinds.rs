//! The kinds of values settings take: how each is parsed, and how an error or the documentation names it.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::time::Duration;

/// How a value is understood.
pub(super) struct Kind<T> {
    /// The values it takes, in words.
    pub(super) expected: String,
    /// Whether a value must not be repeated in an error.
    pub(super) secret: bool,
    parse: Parse<T>,
}

type Parse<T> = Box<dyn Fn(&str) -> Option<T>>;

impl<T> Kind<T> {
    pub(super) fn new(expected: impl Into<String>, parse: impl Fn(&str) -> Option<T> + 'static) -> Self {
        Self { expected: expected.into(), secret: false, parse: Box::new(parse) }
    }

    pub(super) fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    pub(super) fn parse(&self, text: &str) -> Option<T> {
        (self.parse)(text)
    }
}

/// A socket address. Names are not resolved: what a process listens on should not depend on a name server.
pub(super) fn address() -> Kind<SocketAddr> {
    Kind::new("an IP address and port like 0.0.0.0:8081 or [::1]:8081", |text| text.parse().ok())
}

/// `true` or `false`, in the spellings that YAML has for them.
pub(super) fn flag() -> Kind<bool> {
    Kind::new("true or false", |text| match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    })
}

/// One of a few names.
pub(super) fn one_of<T: Copy + 'static, const N: usize>(values: [(&'static str, T); N]) -> Kind<T> {
    let expected = format!("one of {}", values.map(|(name, _)| name).join(", "));
    Kind::new(expected, move |text| {
        let (_, value) = values.iter().find(|(name, _)| *name == text)?;
        Some(*value)
    })
}

/// A whole number.
pub(super) fn count(range: RangeInclusive<usize>) -> Kind<usize> {
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    Kind::new(expected, move |text| text.parse().ok().filter(|count| range.contains(count)))
}

/// A whole number of at least 1.
pub(super) fn positive(most: usize) -> Kind<NonZeroUsize> {
    let count = count(1..=most);
    Kind::new(count.expected.clone(), move |text| NonZeroUsize::new(count.parse(text)?))
}

/// The same, in 32 bits.
pub(super) fn positive_u32(most: u32) -> Kind<NonZeroU32> {
    let range = 1..=most;
    Kind::new(format!("a whole number from 1 to {most}"), move |text| {
        text.parse().ok().filter(|count| range.contains(count)).and_then(NonZeroU32::new)
    })
}

/// A duration in humantime's spelling. The bounds are in that spelling too.
pub(super) fn duration(least: &'static str, most: &'static str) -> Kind<Duration> {
    let range = parsed_bound(least)..=parsed_bound(most);
    Kind::new(format!("a duration from {least} to {most}"), move |text| {
        humantime::parse_duration(text).ok().filter(|duration| range.contains(duration))
    })
}

/// A duration, or none at all, spelt `0s`.
pub(super) fn duration_or_never(least: &'static str, most: &'static str) -> Kind<Option<Duration>> {
    let some = duration(least, most);
    Kind::new(format!("{}, or 0s for never", some.expected), move |text| {
        match humantime::parse_duration(text) {
            Ok(Duration::ZERO) => Some(None),
            _ => some.parse(text).map(Some),
        }
    })
}

fn parsed_bound(text: &str) -> Duration {
    humantime::parse_duration(text).expect("the bounds are constants: a test reads them all")
}

/// A share from 0 to 1, in millionths: taken from the decimal text, so that it is exact.
pub(super) fn share() -> Kind<u32> {
    Kind::new("a number from 0 to 1 with at most six decimals", |text| {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 6 {
            return None;
        }
        let ppm = format!("{whole}{decimals:0<6}").parse().ok()?;
        (ppm <= 1_000_000).then_some(ppm)
    })
}
