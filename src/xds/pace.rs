//! Pauses between attempts to connect, and between refusals of answers.

use std::time::Duration;

use tokio::time::Instant;

use super::options::BackoffOptions;

/// Pause before the second refusal of a version; each further one is twice as long.
const FIRST_REFUSAL_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two refusals of a version. A state-of-the-world server sends no better version before its last
/// one is refused, so a correction can be this late.
const LONGEST_REFUSAL_PAUSE: Duration = Duration::from_secs(10);
/// Minimum pause between any two refusals: a server can also invent a version for each answer.
const LEAST_REFUSAL_PAUSE: Duration = Duration::from_millis(100);

/// Pauses between attempts to connect: each is twice as long as the one before.
#[derive(Debug)]
pub(super) struct Backoff {
    options: BackoffOptions,
    /// The next pause without jitter; `None`: the first one.
    next: Option<Duration>,
}

impl Backoff {
    pub fn new(options: BackoffOptions) -> Self {
        Self { options, next: None }
    }

    /// Returns the pause before the next attempt. `random` is between 0 and 1,000,000: the share of half of the pause
    /// that is left out.
    pub fn pause(&mut self, random: u32) -> Duration {
        let pause = self.next.unwrap_or(self.options.initial).min(self.options.max);
        self.next = Some(pause.saturating_mul(2));
        if !self.options.jitter {
            return pause;
        }
        let half_us = u64::try_from(pause.as_micros() / 2).unwrap_or(u64::MAX);
        // A pause is at most an hour, so the product is far below 2^64.
        let shortened_us = half_us.saturating_mul(u64::from(random.min(1_000_000))) / 1_000_000;
        pause.saturating_sub(Duration::from_micros(shortened_us))
    }

    /// Starts over with the first pause, after a stream that worked.
    pub fn reset(&mut self) {
        self.next = None;
    }
}

/// When to refuse an answer. A server resends a refused version as soon as it is refused: without pauses, both sides
/// would do nothing else.
#[derive(Debug, Default)]
pub(super) struct RefusalPace {
    last: Option<LastRefusal>,
}

#[derive(Debug)]
struct LastRefusal {
    version: String,
    due: Instant,
    /// When the last refusal sent before this one was due.
    sent_before: Option<Instant>,
    /// Pause before the next refusal of the same version.
    pause: Duration,
}

impl RefusalPace {
    /// Returns when to refuse `version`, which arrived at `now`: immediately for a new version. A refusal that was not
    /// due by `now` is not sent: this one replaces it.
    pub fn due(&mut self, version: &str, now: Instant) -> Instant {
        let sent_before = self
            .last
            .as_ref()
            .and_then(|last| if last.due <= now { Some(last.due) } else { last.sent_before });
        let (due, pause) = match &self.last {
            Some(last) if last.version == version => {
                (now.max(last.due + last.pause), last.pause.saturating_mul(2).min(LONGEST_REFUSAL_PAUSE))
            }
            _ => (sent_before.map_or(now, |sent| now.max(sent + LEAST_REFUSAL_PAUSE)), FIRST_REFUSAL_PAUSE),
        };
        self.last = Some(LastRefusal { version: version.to_owned(), due, sent_before, pause });
        due
    }

    pub fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(jitter: bool) -> BackoffOptions {
        BackoffOptions { initial: Duration::from_secs(1), max: Duration::from_secs(5), jitter }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_again_after_success() {
        let mut backoff = Backoff::new(options(false));
        let pauses: Vec<_> = (0..5).map(|_| backoff.pause(0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.pause(1_000_000), Duration::from_secs(1));
    }

    #[test]
    fn jitter_leaves_out_half_of_a_pause_at_most() {
        let table = [(0, 1_000), (500_000, 750), (1_000_000, 500), (u32::MAX, 500)];
        for (random, expected_ms) in table {
            let pause = Backoff::new(options(true)).pause(random);
            assert_eq!(pause, Duration::from_millis(expected_ms), "{random}");
        }
    }

    /// Milliseconds from `start` at which each of these versions is refused, if the server sends the next one as soon
    /// as it can.
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
    async fn a_new_version_does_not_wait_for_the_refusal_that_it_replaces() {
        let mut pace = RefusalPace::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.due("7", at(0)), at(0));
        assert_eq!(pace.due("7", at(1)), at(500));
        assert_eq!(pace.due("7", at(501)), at(1_500));
        // The second refusal was the last one sent.
        assert_eq!(pace.due("8", at(520)), at(600));
        assert_eq!(pace.due("9", at(530)), at(600));
        assert_eq!(pace.due("10", at(900)), at(900));
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
