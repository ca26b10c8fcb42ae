//! The pauses between attempts to connect.

use std::time::Duration;

use super::options::BackoffOptions;

/// Doubles the pause from attempt to attempt.
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

    /// The pause before the next attempt. `random` is between 0 and 1,000,000: the share of half of the pause that is
    /// left out.
    pub fn pause(&mut self, random: u32) -> Duration {
        let pause = self.next.unwrap_or(self.options.initial).min(self.options.max);
        self.next = Some(pause.saturating_mul(2));
        if !self.options.jitter {
            return pause;
        }
        let half_us = u64::try_from(pause.as_micros() / 2).unwrap_or(u64::MAX);
        // The pause is at most an hour, so the product is far below 2^64.
        let shortened_us = half_us.saturating_mul(u64::from(random.min(1_000_000))) / 1_000_000;
        pause.saturating_sub(Duration::from_micros(shortened_us))
    }

    /// After a stream that worked.
    pub fn reset(&mut self) {
        self.next = None;
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
}
