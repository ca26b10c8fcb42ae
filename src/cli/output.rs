//! Standard output and standard error of the sub-commands, and durations as text. `println!` and `eprintln!` panic when
//! the reader has gone, and when the device is full.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// For output that cannot be written.
const NOT_WRITTEN: u8 = 2;

/// Writes to standard output.
///
/// # Errors
/// When the reader has gone or the device is full. [`end`] turns it into the exit code.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a line to standard error: a problem, or a remark that is no part of the output.
pub(crate) fn print_error(line: impl Display) {
    // There is no other place to report to; the exit code remains.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The exit code of a command whose output was `printed`: `code`, unless the output could not be written. A reader that
/// has read enough, as `head` does, is no failure.
pub(crate) fn end(printed: io::Result<()>, code: ExitCode) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_error(format_args!("ratelimitd: standard output cannot be written: {error}"));
            ExitCode::from(NOT_WRITTEN)
        }
        _ => code,
    }
}

/// As many decimals as the duration needs: `60`, `1.5`, `0.000001`.
pub(super) fn decimal_seconds(duration: Duration) -> String {
    let exact = format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos());
    exact.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// For people: the three largest units of a duration from a minute on, rounded down, else decimal seconds.
/// `8d 21h 31m`, `15m`, `1m 30s`, `1.5s`.
pub(super) fn readable_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        return format!("{}s", decimal_seconds(duration));
    }
    let units =
        [(seconds / 86_400, 'd'), (seconds / 3_600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let largest = units.iter().skip_while(|(count, _)| *count == 0).take(3);
    let shown = largest.filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}"));
    shown.collect::<Vec<_>>().join(" ")
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
    fn long_durations_are_readable() {
        let table = [
            (Duration::from_secs(768_663), "8d 21h 31m"),
            (Duration::from_secs(900), "15m"),
            (Duration::from_secs(60), "1m"),
            (Duration::from_millis(59_500), "59.5s"),
            (Duration::from_millis(90_500), "1m 30s"),
            (Duration::from_secs(86_400), "1d"),
            (Duration::from_secs(86_401), "1d"),
            (Duration::from_secs(3_661), "1h 1m 1s"),
            (Duration::ZERO, "0s"),
        ];
        for (duration, text) in table {
            assert_eq!(readable_duration(duration), text);
        }
    }
}
