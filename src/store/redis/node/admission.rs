//! How fast a server decides, as its batches show, and how many requests may therefore wait for it.
//!
//! Whoever waits longer than its deadline has waited for nothing, and what a server decides for somebody who has gone
//! is lost to those who have not. So the queue holds what can be decided in time, and no more. Pure: time is given.

use std::time::Duration;

/// Old measurements fade: each new one counts an eighth.
const MEMORY: u64 = 8;

/// A call's time is known to be longer than expected by up to that many times its usual deviation.
const DEVIATIONS: u64 = 2;

/// What is known of a server's pace. All times in microseconds.
#[derive(Debug, Default)]
pub(super) struct Pace {
    call_us: u64,
    deviation_us: u64,
    /// Time in which there was always work, and the requests taken up in it; both fade alike.
    busy_us: u64,
    taken: u64,
    samples: u64,
    is_known: bool,
}

impl Pace {
    /// A call took so long.
    pub(super) fn called(&mut self, took: Duration) {
        let took_us = us(took);
        if !self.is_known {
            self.is_known = true;
            self.call_us = took_us;
            return;
        }
        self.deviation_us = faded(self.deviation_us) + self.call_us.abs_diff(took_us) / MEMORY;
        self.call_us = faded(self.call_us) + took_us / MEMORY;
    }

    /// So many requests were taken up at once, so long after those before them, while others waited all the time.
    pub(super) fn taken_while_busy(&mut self, requests: usize, after: Duration) {
        self.busy_us = faded(self.busy_us) + us(after);
        self.taken = faded(self.taken) + requests as u64;
        self.samples = self.samples.saturating_add(1);
    }

    /// How much time a request must have left for its answer to come before its deadline: what a call takes, and a
    /// little more; half of `timeout` at most, so that a server that has become slow is still asked.
    pub(super) fn lead(&self, timeout: Duration) -> Duration {
        Duration::from_micros(self.call_us + DEVIATIONS * self.deviation_us).min(timeout / 2)
    }

    /// How many requests can wait and still be decided within `timeout`; `None` while that has hardly been seen:
    /// a burst is no overload.
    pub(super) fn bearable(&self, timeout: Duration) -> Option<usize> {
        if self.samples < MEMORY {
            return None;
        }
        let spare_us = us(timeout.saturating_sub(self.lead(timeout)));
        // Not all of the time that there is: the measured pace is a mean, and who is slower than that is late.
        let bearable = (spare_us / 4 * 3).saturating_mul(self.taken).checked_div(self.busy_us)?;
        Some(usize::try_from(bearable).unwrap_or(usize::MAX))
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn faded(sum: u64) -> u64 {
    sum - sum / MEMORY
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_is_held_against_a_server_that_is_not_known() {
        let pace = Pace::default();
        assert_eq!((pace.lead(15 * MS), pace.bearable(15 * MS)), (Duration::ZERO, None));
    }

    #[test]
    fn as_many_may_wait_as_are_decided_in_most_of_what_a_call_leaves() {
        let mut pace = Pace::default();
        for _ in 0..50 {
            pace.called(3 * MS);
            pace.taken_while_busy(100, 2 * MS);
        }
        assert_eq!(pace.lead(15 * MS), 3 * MS);
        // 50 a millisecond, for 9 of them.
        assert_eq!(pace.bearable(15 * MS), Some(450));
    }

    #[test]
    fn calls_that_vary_ask_for_a_greater_lead() {
        let mut pace = Pace::default();
        for _ in 0..50 {
            pace.called(2 * MS);
            pace.called(4 * MS);
        }
        let lead = pace.lead(15 * MS);
        assert!(lead > 4 * MS && lead < 6 * MS, "{lead:?}");
    }

    #[test]
    fn a_server_that_became_slow_is_still_asked_and_may_become_fast_again() {
        let mut pace = Pace::default();
        for _ in 0..50 {
            pace.called(100 * MS);
            pace.taken_while_busy(100, 100 * MS);
        }
        assert_eq!(pace.lead(15 * MS), 15 * MS / 2);
        assert!(pace.bearable(15 * MS).is_some_and(|few| few < 10));
        for _ in 0..50 {
            pace.called(MS);
            pace.taken_while_busy(100, MS);
        }
        assert!(pace.lead(15 * MS) < 3 * MS);
        assert!(pace.bearable(15 * MS).is_some_and(|many| many > 500));
    }
}
