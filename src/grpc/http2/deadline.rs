//! The time that a client gives to a call: the header `grpc-timeout` (gRPC over HTTP/2, "Timeout").

use std::time::Duration;

use http::HeaderValue;

use super::call_task::CALL_TIMEOUT;

/// The most that the protocol allows.
const MAX_DIGITS: usize = 8;

/// How long the decision of a call may take from now on: as long as its client allows, at most [`CALL_TIMEOUT`].
/// `given` is the header; one that is not valid does not count.
pub(in crate::grpc) fn time_limit(given: Option<&HeaderValue>) -> Duration {
    let given = given.and_then(|value| parse(value.as_bytes()));
    given.map_or(CALL_TIMEOUT, |given| given.min(CALL_TIMEOUT))
}

fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| 10 * number + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(3_600 * number),
        b'M' => Duration::from_secs(60 * number),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_read() {
        let times = ["2H", "2M", "2S", "20m", "20u", "20n", "99999999H"].map(|text| parse(text.as_bytes()));
        let seconds = [7_200, 120, 2].map(Duration::from_secs);
        assert_eq!(times[..3], seconds.map(Some));
        assert_eq!(times[3], Some(Duration::from_millis(20)));
        assert_eq!(times[4], Some(Duration::from_micros(20)));
        assert_eq!(times[5], Some(Duration::from_nanos(20)));
        assert_eq!(times[6], Some(Duration::from_secs(99_999_999 * 3_600)));
    }

    #[test]
    fn what_the_protocol_does_not_allow_is_no_time() {
        for text in ["", "S", "20", "123456789m", "-1S", "1.5S", "1 S", "1s", "\u{e9}S"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_call_has_at_most_its_longest_time() {
        let limit = |value| time_limit(Some(&HeaderValue::from_static(value)));
        assert_eq!(limit("20m"), Duration::from_millis(20));
        assert_eq!(limit("1H"), CALL_TIMEOUT);
        assert_eq!(limit("soon"), CALL_TIMEOUT);
        assert_eq!(time_limit(None), CALL_TIMEOUT);
    }
}
