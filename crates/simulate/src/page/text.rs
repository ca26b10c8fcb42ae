//! Numbers, shares, lengths of time and dates for people.

use std::time::{Duration, UNIX_EPOCH};

pub(super) use crate::report::grouped;
use crate::report::{LimitReport, percent};

/// Stands where a number is not known.
pub(super) const NONE: &str = "–";

pub(super) fn grouped_or_none(number: Option<u64>) -> String {
    number.map_or_else(|| NONE.to_owned(), grouped)
}

/// At most four characters, for the labels of an axis: `950`, `1.5k`, `20M`.
pub(super) fn short(number: u64) -> String {
    let (unit, name) = match number {
        0..1_000 => return number.to_string(),
        1_000..1_000_000 => (1_000, "k"),
        1_000_000..1_000_000_000 => (1_000_000, "M"),
        _ => (1_000_000_000, "G"),
    };
    let tenths = number / (unit / 10);
    if tenths.is_multiple_of(10) || tenths >= 100 {
        format!("{}{name}", tenths / 10)
    } else {
        format!("{}.{}{name}", tenths / 10, tenths % 10)
    }
}

/// Parts per million of `part` as percent: `0.42 %`. A share that rounds down to 0 is not shown as none.
pub(super) fn share(part: u64, ppm: u64) -> String {
    if ppm == 0 && part > 0 {
        return "under 0.0001 %".to_owned();
    }
    format!("{} %", percent(ppm))
}

/// The period of a limit: a window of its calendar, if it has one.
pub(super) fn own_period(rule: &LimitReport) -> String {
    rule.calendar.as_ref().map_or_else(|| period(rule.period_s), |calendar| format!("window of {calendar}"))
}

/// A period of a limit in its largest unit without a remainder: `90 s`, `1 min`, `1 d`.
#[must_use]
pub fn period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let whole = units.iter().find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{seconds} s"), |(unit, name)| format!("{} {name}", seconds / unit))
}

/// A length of time in its two largest units, rounded down: `2 d 3 h`, `4 s`, `250 ms`.
pub(super) fn span(us: u64) -> String {
    if us < 1_000_000 {
        return if us < 1_000 { format!("{us} µs") } else { format!("{} ms", us / 1_000) };
    }
    let seconds = us / 1_000_000;
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let shown = parts[first..].iter().take(2).filter(|(count, _)| *count > 0);
    shown.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
}

/// A time in UTC: `2026-11-21 14:05:00`.
pub(super) fn time(us: u64) -> String {
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(us)).to_string();
    text.trim_end_matches('Z').replacen('T', " ", 1)
}

/// A time in UTC without the year: `11-21 14:05:00`.
pub(super) fn time_of_year(us: u64) -> String {
    time(us).split_off(5)
}

/// At most 80 characters of a key, which can be as long as a line of the log.
pub(super) fn cut(key: &str) -> String {
    const MOST: usize = 80;
    match key.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}

/// `1 key`, `2 keys`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_shortened() {
        let table = [
            (0, "0", "0"),
            (999, "999", "999"),
            (1_000, "1,000", "1k"),
            (1_540, "1,540", "1.5k"),
            (12_345, "12,345", "12k"),
            (1_000_000, "1,000,000", "1M"),
            (u64::MAX, "18,446,744,073,709,551,615", "18446744073G"),
        ];
        for (number, long, brief) in table {
            assert_eq!((grouped(number).as_str(), short(number).as_str()), (long, brief));
        }
    }

    #[test]
    fn a_share_that_is_not_zero_is_not_shown_as_zero() {
        let table = [(0, 0, "0 %"), (1, 0, "under 0.0001 %"), (1, 1, "0.0001 %"), (5, 4_200, "0.42 %")];
        for (part, ppm, text) in table {
            assert_eq!(share(part, ppm), text);
        }
    }

    #[test]
    fn times_are_shown_in_their_largest_units() {
        let periods = [(1, "1 s"), (60, "1 min"), (90, "90 s"), (3_600, "1 h"), (86_400, "1 d"), (0, "0 s")];
        for (seconds, text) in periods {
            assert_eq!(period(seconds), text);
        }
        let spans = [
            (7, "7 µs"),
            (250_000, "250 ms"),
            (4_000_000, "4 s"),
            (3_600_000_000, "1 h"),
            (86_400_000_000 * 2 + 3_600_000_000 * 3 + 5_000_000, "2 d 3 h"),
        ];
        for (us, text) in spans {
            assert_eq!(span(us), text);
        }
        assert_eq!(time(1_700_000_000_000_000), "2023-11-14 22:13:20");
        assert_eq!(time_of_year(1_700_000_000_000_000), "11-14 22:13:20");
    }

    #[test]
    fn a_long_key_is_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(81)), format!("{}…", "é".repeat(80)));
        assert_eq!(cut(&"é".repeat(80)), "é".repeat(80));
    }
}
