//! When to refuse an answer. A server that has a refused version at hand sends it again as soon as it is refused:
//! without pauses, both would do nothing else.

use std::time::Duration;

use tokio::time::Instant;

/// The pause before the second refusal of a version; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause. A server of state of the world sends no better version before its last one is refused, so this is
/// also how late a correction can be.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Between any two refusals: a server may also invent a version for each answer.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// Spaces the refusals of one server.
#[derive(Debug, Default)]
pub(super) struct RefusalPace {
    last: Option<LastRefusal>,
}

#[derive(Debug)]
struct LastRefusal {
    version: String,
    due: Instant,
    /// Before the next refusal of the same version.
    pause: Duration,
}

impl RefusalPace {
    /// When to refuse `version`, which came at `now`: at once for a new version.
    pub fn due(&mut self, version: &str, now: Instant) -> Instant {
        let (due, pause) = match &self.last {
            None => (now, FIRST_PAUSE),
            Some(last) if last.version == version => {
                (now.max(last.due + last.pause), last.pause.saturating_mul(2).min(LONGEST_PAUSE))
            }
            Some(last) => (now.max(last.due + LEAST_PAUSE), FIRST_PAUSE),
        };
        self.last = Some(LastRefusal { version: version.to_owned(), due, pause });
        due
    }

    /// An answer was accepted.
    pub fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The milliseconds from `start` at which each of these versions is refused, if the server sends the next one as
    /// soon as it can.
    fn refusals(versions: &[&str]) -> Vec<u128> {
        let mut pace = RefusalPace::default();
        let start = Instant::now();
        let mut now = start;
        let mut times = Vec::new();
        for version in versions {
            now = pace.due(version, now);
            times.push(now.duration_since(start).as_millis());
        }
        times
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_comes_again_and_again_is_refused_ever_more_slowly() {
        let times = refusals(&["7"; 8]);
        assert_eq!(times, [0, 500, 1_500, 3_500, 7_500, 15_500, 25_500, 35_500]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_is_refused_almost_at_once() {
        assert_eq!(refusals(&["7", "7", "8", "9", "9"]), [0, 500, 600, 700, 1_200]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_accepted_answer_ends_the_pauses() {
        let mut pace = RefusalPace::default();
        let now = Instant::now();
        pace.due("7", now);
        pace.reset();
        assert_eq!(pace.due("7", now), now);
    }
}
