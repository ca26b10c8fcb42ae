//! Formats durations for people.

use std::time::Duration;

/// Formats a duration of a minute or more with its three largest units, rounded down, and a shorter one in its own unit
/// with decimals. Units are those of the settings: `8d 21h 31m`, `15m`, `1.5s`, `250ms`, `500us`.
pub fn readable_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        let (digits, unit) = match duration.as_micros() {
            1..1_000 => (3, "us"),
            1_000..1_000_000 => (6, "ms"),
            _ => (9, "s"),
        };
        return format!("{}{unit}", decimal(duration, digits));
    }
    let units =
        [(seconds / 86_400, 'd'), (seconds / 3_600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let largest = units.iter().skip_while(|(count, _)| *count == 0).take(3);
    let shown = largest.filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}"));
    shown.collect::<Vec<_>>().join(" ")
}

/// Formats seconds with as many decimals as needed: `60`, `1.5`, `0.000001`.
pub fn decimal_seconds(duration: Duration) -> String {
    decimal(duration, 9)
}

/// Nanoseconds with a point before the last `digits`, without trailing zeros.
fn decimal(duration: Duration, digits: usize) -> String {
    let nanos = format!("{:0width$}", duration.as_nanos(), width = digits + 1);
    let (whole, fraction) = nanos.split_at(nanos.len() - digits);
    format!("{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_no_more_decimals_than_they_need() {
        let shown = [0, 1, 1_500_000, 60_000_000].map(|us| decimal_seconds(Duration::from_micros(us)));
        assert_eq!(shown, ["0", "0.000001", "1.5", "60"]);
        assert_eq!(decimal_seconds(Duration::new(100, 1)), "100.000000001");
    }

    #[test]
    fn durations_are_readable() {
        let table = [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(1), "0.000000001s"),
            (Duration::from_micros(1), "1us"),
            (Duration::from_micros(999), "999us"),
            (Duration::from_micros(33_333), "33.333ms"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_secs(1), "1s"),
            (Duration::from_millis(1_500), "1.5s"),
            (Duration::from_millis(59_500), "59.5s"),
            (Duration::from_secs(60), "1m"),
            (Duration::from_millis(90_500), "1m 30s"),
            (Duration::from_secs(900), "15m"),
            (Duration::from_secs(3_661), "1h 1m 1s"),
            (Duration::from_secs(86_400), "1d"),
            (Duration::from_secs(86_401), "1d"),
            (Duration::from_secs(768_663), "8d 21h 31m"),
        ];
        for (duration, text) in table {
            assert_eq!(readable_duration(duration), text);
        }
    }
}
