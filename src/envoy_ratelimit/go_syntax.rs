//! Parses values as Go's standard library and envconfig do: `envoyproxy/ratelimit` is written in Go.

use std::time::Duration;

/// `strconv.ParseBool`.
pub(super) fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// `strconv.ParseInt` with base 0: a prefix chooses the base, and underscores can separate digits.
pub(super) fn parse_whole(text: &str) -> Option<i64> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let prefixed = [("0x", 16), ("0b", 2), ("0o", 8)];
    let (digits, radix) = match prefixed.iter().find(|(prefix, _)| lower.starts_with(prefix)) {
        Some((prefix, radix)) => (&lower[prefix.len()..], *radix),
        // A leading zero means octal; it counts as a digit, so that an underscore can follow it.
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (lower.as_str(), 10),
    };
    let has_base = digits.len() < lower.len();
    let digits = if has_base { digits.strip_prefix('_').unwrap_or(digits) } else { digits };
    let is_spaced = digits.split('_').all(|group| !group.is_empty());
    let is_digits = digits.bytes().all(|byte| byte == b'_' || char::from(byte).is_digit(radix));
    if !is_spaced || !is_digits {
        return None;
    }
    let magnitude = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    i64::try_from(if is_negative { -magnitude } else { magnitude }).ok()
}

/// `time.ParseDuration`. Negative durations are `None`: no variable accepts them.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total_ns: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        total_ns = total_ns.checked_add(scaled_ns(number, unit_ns(unit)?)?)?;
        rest = after;
    }
    // Go's durations are signed 64-bit nanoseconds.
    let ns = u64::try_from(total_ns).ok().filter(|&ns| ns <= i64::MAX.unsigned_abs())?;
    (!text.is_empty() && text != "+").then(|| Duration::from_nanos(ns))
}

fn unit_ns(unit: &str) -> Option<u128> {
    match unit {
        "ns" => Some(1),
        // The two spellings of the micro sign.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// `number` with an optional fraction, in units of `unit_ns`, truncated to nanoseconds.
fn scaled_ns(number: &str, unit_ns: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Eighteen digits are finer than a nanosecond of an hour.
    let fraction = &fraction[..fraction.len().min(18)];
    let digits: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    whole.checked_mul(unit_ns)?.checked_add(digits.checked_mul(unit_ns)? / scale)
}

/// A map in envconfig's syntax: `key:value` pairs separated by commas. Neither part can contain a colon.
pub(super) fn parse_map(text: &str) -> Option<Vec<(String, String)>> {
    let pair = |item: &str| {
        let (key, value) = item.split_once(':')?;
        (!value.contains(':')).then(|| (key.to_owned(), value.to_owned()))
    };
    if text.trim().is_empty() { Some(Vec::new()) } else { text.split(',').map(pair).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bases_of_go() {
        let cases = [
            ("8080", Some(8080)),
            ("0x1F90", Some(8080)),
            ("0X1f90", Some(8080)),
            ("0b1", Some(1)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("0_17", Some(15)),
            ("1_000", Some(1000)),
            ("0x_1F", Some(31)),
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("+7", Some(7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("abc", None),
            (" 1", None),
            ("1_", None),
            ("_1", None),
            ("1__0", None),
            ("0x", None),
            ("08", None),
            ("1.5", None),
            ("+-1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_whole(text), expected, "{text:?}");
        }
    }

    #[test]
    fn durations_have_the_units_of_go() {
        let cases = [
            ("300ms", Some(300_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("2h45m", Some(9_900_000_000_000)),
            ("150us", Some(150_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("0", Some(0)),
            ("+1s", Some(1_000_000_000)),
            ("0.0000000001s", Some(0)),
            ("10", None),
            ("", None),
            ("+", None),
            ("1d", None),
            ("-1s", None),
            ("s", None),
            (".s", None),
            ("1 s", None),
            ("1.2.3s", None),
            ("9999999h", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text), expected.map(Duration::from_nanos), "{text:?}");
        }
    }

    #[test]
    fn flags_and_maps_are_those_of_envconfig() {
        for (text, expected) in [
            ("1", Some(true)),
            ("F", Some(false)),
            ("True", Some(true)),
            ("yes", None),
            ("tRue", None),
            ("", None),
        ] {
            assert_eq!(parse_flag(text), expected, "{text:?}");
        }
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(parse_map("a:1,b:"), Some(vec![pair("a", "1"), pair("b", "")]));
        assert_eq!(parse_map(""), Some(Vec::new()));
        assert_eq!(parse_map("a"), None);
        assert_eq!(parse_map("a:b:c"), None);
    }
}
