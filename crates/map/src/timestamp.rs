//! Parses times of access logs to microseconds since the epoch.

use engine::algorithm::MAX_TIME_US;
use jiff::Timestamp;
use jiff::fmt::strtime;

use super::values::ValueFault;

/// How a field writes a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// `2026-04-15T20:17:00.310Z`, with up to nine decimals, or with an offset instead of `Z`.
    Rfc3339,
    /// `15/Apr/2026:20:17:00 +0200`; in HAProxy with decimals and without an offset, which means UTC.
    CommonLog,
    /// A number of units since the epoch, which may have decimals; `unit_ns`: nanoseconds per unit.
    Epoch { unit_ns: u64 },
}

impl TimeFormat {
    /// The names in maps.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("rfc3339", Self::Rfc3339),
        ("common_log", Self::CommonLog),
        ("s", Self::Epoch { unit_ns: 1_000_000_000 }),
        ("ms", Self::Epoch { unit_ns: 1_000_000 }),
        ("us", Self::Epoch { unit_ns: 1_000 }),
        ("ns", Self::Epoch { unit_ns: 1 }),
    ];

    pub const SECONDS: Self = Self::Epoch { unit_ns: 1_000_000_000 };

    /// Microseconds since the epoch.
    pub fn parse(self, text: &str) -> Result<u64, ValueFault> {
        let parsed = match self {
            Self::Rfc3339 => rfc3339(text),
            Self::CommonLog => common_log(text),
            Self::Epoch { unit_ns } => epoch(text, unit_ns),
        };
        let t_us = parsed.ok_or_else(|| ValueFault::Time(shortened(text)))?;
        if t_us > MAX_TIME_US { Err(ValueFault::TimeRange(t_us)) } else { Ok(t_us) }
    }
}

/// The beginning of a string, for a message.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

fn parse_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

fn rfc3339(text: &str) -> Option<u64> {
    since_epoch(text.parse().ok()?)
}

fn common_log(text: &str) -> Option<u64> {
    let (local, offset) = text.split_once(' ').unwrap_or((text, "+0000"));
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S%.f%z", format!("{local}{offset}")).ok()?;
    since_epoch(time.to_timestamp().ok()?)
}

/// Microseconds; `None` before 1970.
fn since_epoch(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_microsecond()).ok()
}

/// Parses a decimal number of units since the epoch. Nanoseconds are exact until the year 2554.
fn epoch(text: &str, unit_ns: u64) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || whole.len() > 20 {
        return None;
    }
    let whole_ns = u128::from(parse_digits(whole.as_bytes())?) * u128::from(unit_ns);
    let kept = &decimals.as_bytes()[..decimals.len().min(9)];
    let scale = 10_u128.pow(u32::try_from(kept.len()).ok()?);
    let part_ns = u128::from(parse_digits(kept)?) * u128::from(unit_ns) / scale;
    u64::try_from((whole_ns + part_ns) / 1_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-04-15T20:17:00Z.
    const T: u64 = 1_776_284_220_000_000;

    #[test]
    fn times_are_read_as_each_format_writes_them() {
        let table = [
            (TimeFormat::Rfc3339, "2026-04-15T20:17:00Z", T),
            (TimeFormat::Rfc3339, "2026-04-15T20:17:00.310Z", T + 310_000),
            (TimeFormat::Rfc3339, "2026-04-15 22:17:00.1234567+02:00", T + 123_456),
            (TimeFormat::Rfc3339, "1970-01-01T00:00:00Z", 0),
            (TimeFormat::Rfc3339, "2000-03-01T00:00:00Z", 951_868_800_000_000),
            (TimeFormat::Rfc3339, "2024-02-29T12:00:00Z", 1_709_208_000_000_000),
            (TimeFormat::CommonLog, "15/Apr/2026:20:17:00 +0000", T),
            (TimeFormat::CommonLog, "15/Apr/2026:13:17:00 -0700", T),
            (TimeFormat::CommonLog, "15/Apr/2026:20:17:00.655", T + 655_000),
            (TimeFormat::SECONDS, "1776284220.310", T + 310_000),
            (TimeFormat::SECONDS, "1776284220", T),
            (TimeFormat::Epoch { unit_ns: 1_000_000 }, "1776284220000", T),
            (TimeFormat::Epoch { unit_ns: 1 }, "1776284220000001999", T + 1),
        ];
        for (format, text, expected) in table {
            assert_eq!(format.parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let table = [
            (TimeFormat::Rfc3339, "2026-02-29T20:17:00Z"),
            (TimeFormat::Rfc3339, "2026-13-01T20:17:00Z"),
            (TimeFormat::Rfc3339, "2026-04-15T24:17:00Z"),
            (TimeFormat::Rfc3339, "2026-04-15T20:17:00"),
            (TimeFormat::Rfc3339, "2026-04-15T20:17:00.Z"),
            (TimeFormat::Rfc3339, "1969-12-31T23:59:59Z"),
            (TimeFormat::Rfc3339, "1970-01-01T00:00:00+01:00"),
            (TimeFormat::Rfc3339, "2150-01-01T00:00:00Z"),
            (TimeFormat::Rfc3339, "é026-04-15T20:17:00Z"),
            (TimeFormat::CommonLog, "15/Apx/2026:20:17:00 +0000"),
            (TimeFormat::CommonLog, "15/Apr/2026:20:17:00+0000"),
            (TimeFormat::SECONDS, ""),
            (TimeFormat::SECONDS, "-5"),
            (TimeFormat::SECONDS, "1e9"),
            (TimeFormat::SECONDS, "99999999999999999999"),
        ];
        for (format, text) in table {
            assert!(format.parse(text).is_err(), "{text}");
        }
    }
}
