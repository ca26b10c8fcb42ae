//! Durations as decimal seconds.

use std::time::Duration;

/// As many decimals as the duration needs: `60`, `1.5`, `0.000001`.
pub(super) fn decimal_seconds(duration: Duration) -> String {
    let exact = format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos());
    exact.trim_end_matches('0').trim_end_matches('.').to_owned()
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
}
