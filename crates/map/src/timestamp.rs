//! Times as access logs write them, to microseconds since the epoch.

use engine::algorithm::MAX_TIME_US;

use super::values::ValueFault;

const SECOND_US: u64 = 1_000_000;

/// How a field writes a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// `2026-04-15T20:17:00.310Z`, with any number of decimals, or with an offset instead of `Z`.
    Rfc3339,
    /// `15/Apr/2026:20:17:00 +0200`; with decimals and without an offset in HAProxy, which means UTC.
    CommonLog,
    /// A number since the epoch, which may have decimals, in units of this many nanoseconds.
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
            Self::Rfc3339 => rfc3339(text.as_bytes()),
            Self::CommonLog => common_log(text.as_bytes()),
            Self::Epoch { unit_ns } => epoch(text, unit_ns),
        };
        let t_us = parsed.ok_or_else(|| ValueFault::Time(shortened(text)))?;
        if t_us > MAX_TIME_US { Err(ValueFault::TimeRange(t_us)) } else { Ok(t_us) }
    }
}

/// The beginning of a text for a message.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

fn parse_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Days from 1970-01-01, in the proleptic Gregorian calendar. `None` before 1970 and for days that no month has.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    const IN_MONTH: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    let leap_day = u64::from(is_leap && month == 2);
    if year < 1970 || day == 0 || day > IN_MONTH.get(index)? + leap_day {
        return None;
    }
    // Leap days of all years before this one, less those before 1970.
    let last = year - 1;
    let leap_days = last / 4 - last / 100 + last / 400 - 477 + u64::from(is_leap && month > 2);
    Some((year - 1970) * 365 + leap_days + BEFORE_MONTH.get(index)? + day - 1)
}

/// `HH:MM:SS`, in seconds. A leap second counts as the second after it.
fn time_of_day(text: &[u8]) -> Option<u64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let (hour, minute, second) =
        (parse_digits(&[*h1, *h2])?, parse_digits(&[*m1, *m2])?, parse_digits(&[*s1, *s2])?);
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3_600 + minute * 60 + second)
}

/// `.123456` at the start of `text`, in microseconds, and what follows. Further digits are cut off.
fn fraction(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".").or_else(|| text.strip_prefix(b",")) else {
        return Some((0, text));
    };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let kept = &digits[..digits.len().min(6)];
    let scale = 10_u64.pow(6 - u32::try_from(kept.len()).ok()?);
    (!digits.is_empty()).then_some((parse_digits(kept)? * scale, rest))
}

/// Subtracts an offset `+HH:MM` or `+HHMM`.
fn without_offset(seconds: u64, offset: &[u8]) -> Option<u64> {
    let (sign, digits) = offset.split_first()?;
    let (hours, minutes) = match digits {
        [a, b, b':', c, d] | [a, b, c, d] => (parse_digits(&[*a, *b])?, parse_digits(&[*c, *d])?),
        _ => return None,
    };
    let offset = hours * 3_600 + minutes * 60;
    match sign {
        b'+' => seconds.checked_sub(offset),
        b'-' => seconds.checked_add(offset),
        _ => None,
    }
}

fn rfc3339(text: &[u8]) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = date else { return None };
    let rest = rest.strip_prefix(b"T").or_else(|| rest.strip_prefix(b" "))?;
    let (time, rest) = rest.split_at_checked(8)?;
    let day =
        days(parse_digits(&[*y1, *y2, *y3, *y4])?, parse_digits(&[*m1, *m2])?, parse_digits(&[*d1, *d2])?)?;
    let (micros, offset) = fraction(rest)?;
    let local = day * 86_400 + time_of_day(time)?;
    let seconds = if matches!(offset, b"Z" | b"z") { local } else { without_offset(local, offset)? };
    Some(seconds * SECOND_US + micros)
}

fn common_log(text: &[u8]) -> Option<u64> {
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (date, rest) = text.split_at_checked(12)?;
    let [d1, d2, b'/', month @ .., b'/', y1, y2, y3, y4, b':'] = date else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let (time, rest) = rest.split_at_checked(8)?;
    let day = days(parse_digits(&[*y1, *y2, *y3, *y4])?, month, parse_digits(&[*d1, *d2])?)?;
    let (micros, offset) = fraction(rest)?;
    let local = day * 86_400 + time_of_day(time)?;
    let seconds = match offset.strip_prefix(b" ") {
        Some(offset) => without_offset(local, offset)?,
        None if offset.is_empty() => local,
        None => return None,
    };
    Some(seconds * SECOND_US + micros)
}

/// A decimal number of units since the epoch. Nanoseconds are exact until the year 2554.
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
