//! Pauses that callers report: the `Retry-After` of a third party, in the last entry of a descriptor.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::{fmt_http_date, parse_http_date};

/// The key of the entry that reports a pause: the last entry of a descriptor. Rules cannot match it.
pub const PAUSE_KEY: &str = "ratelimitd_pause";

/// `Display` and `FromStr` are the text of the header `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Seconds, at least 1. A larger number than 2^64 - 1 is read as that.
    For(u64),
    /// Microseconds since the epoch.
    Until(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the pause")]
pub struct UnreadablePause;

impl Pause {
    /// How long the pause lasts at `now_us`, at most `max_us`. `None` if it has ended.
    pub(crate) fn length_us(self, now_us: u64, max_us: u64) -> Option<u64> {
        let length_us = match self {
            Self::For(seconds) => seconds.saturating_mul(1_000_000),
            Self::Until(end_us) => end_us.saturating_sub(now_us),
        };
        (length_us > 0).then_some(length_us.min(max_us))
    }
}

impl FromStr for Pause {
    type Err = UnreadablePause;

    fn from_str(text: &str) -> Result<Self, UnreadablePause> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let seconds = text.parse().unwrap_or(u64::MAX);
            return if seconds > 0 { Ok(Self::For(seconds)) } else { Err(UnreadablePause) };
        }
        let end = parse_http_date(text).ok().and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        // A date has a year of four digits.
        let end_us = end.and_then(|end| u64::try_from(end.as_micros()).ok());
        end_us.map(Self::Until).ok_or(UnreadablePause)
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::For(seconds) => write!(f, "{seconds}"),
            Self::Until(end_us) => {
                let end: SystemTime = UNIX_EPOCH + Duration::from_micros(end_us);
                f.write_str(&fmt_http_date(end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_whole_seconds_or_a_date_of_http() {
        let date = 1_795_705_200_000_000;
        for (text, expected) in [
            ("30", Some(Pause::For(30))),
            ("007", Some(Pause::For(7))),
            ("99999999999999999999999", Some(Pause::For(u64::MAX))),
            ("Thu, 26 Nov 2026 15:00:00 GMT", Some(Pause::Until(date))),
            ("Thursday, 26-Nov-26 15:00:00 GMT", Some(Pause::Until(date))),
            ("Thu Nov 26 15:00:00 2026", Some(Pause::Until(date))),
            ("0", None),
            ("000", None),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("1e3", None),
            ("30 ", None),
            ("abc", None),
            ("", None),
            ("Thu, 26 Nov 2026 15:00:00", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
        for text in ["30", "Thu, 26 Nov 2026 15:00:00 GMT"] {
            let pause: Pause = text.parse().expect("a pause");
            assert_eq!(pause.to_string(), text);
        }
    }

    #[test]
    fn a_pause_is_bounded_and_does_not_lie_in_the_past() {
        for (pause, now_us, expected) in [
            (Pause::For(30), 5, Some(30_000_000)),
            (Pause::For(601), 5, Some(600_000_000)),
            (Pause::For(u64::MAX), 5, Some(600_000_000)),
            (Pause::Until(1_000_001), 1_000_000, Some(1)),
            (Pause::Until(1_000_000), 1_000_000, None),
            (Pause::Until(u64::MAX), 1_000_000, Some(600_000_000)),
        ] {
            assert_eq!(pause.length_us(now_us, 600_000_000), expected, "{pause:?}");
        }
    }
}
