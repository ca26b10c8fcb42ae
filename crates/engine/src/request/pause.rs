//! Pauses that callers report: the `Retry-After` of a third party, in the last entry of a descriptor.

use std::time::UNIX_EPOCH;

use httpdate::parse_http_date;

/// This key in the last entry of a descriptor reports a pause. Rules cannot match it.
pub const PAUSE_KEY: &str = "ratelimitd_pause";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Seconds, at least 1. A number above 2^64 - 1 is read as that.
    For(u64),
    /// Microseconds since the epoch.
    Until(u64),
}

impl Pause {
    /// Reads the text in the header `Retry-After`: whole seconds, or a date. `None` for other texts, and for 0.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Self::For(text.parse().unwrap_or(u64::MAX))).filter(|pause| *pause != Self::For(0));
        }
        let end = parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(end.as_micros()).ok().map(Self::Until)
    }

    /// How long the pause lasts at `now_us`, at most `max_us`. `None` if it is over.
    pub(crate) fn length_us(self, now_us: u64, max_us: u64) -> Option<u64> {
        let length_us = match self {
            Self::For(seconds) => seconds.saturating_mul(1_000_000),
            Self::Until(end_us) => end_us.saturating_sub(now_us),
        };
        (length_us > 0).then_some(length_us.min(max_us))
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
            assert_eq!(Pause::parse(text), expected, "{text}");
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
