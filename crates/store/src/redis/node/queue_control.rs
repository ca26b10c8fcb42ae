//! Sheds load when a server is overloaded, because a decision after the deadline delays requests that are still in
//! time. Pure: time is an argument.
//!
//! While every batch is full (a busy period), a request that would be late even after the shortest call is refused. A
//! late answer in a busy period proves an overload: from then on calls are expected to take longer than their mean.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::queue::Taken;

/// Each throughput measurement has a weight of 1/8: older ones fade.
const EWMA_DIVISOR: u64 = 8;

/// Calls from which the next call's duration is estimated.
const RECENT_CALLS: usize = 16;

/// Under overload, calls are expected to take their mean duration plus this many mean deviations.
const DEVIATIONS: u64 = 2;

/// After a late answer in a busy period the estimate is pessimistic for this many timeouts. It stays so while batches
/// are small, because they are small only as long as requests are refused.
const CAREFUL_TIMEOUTS: u32 = 8;

/// The estimate for one server, and the queue bound that follows from it.
#[derive(Debug)]
pub(super) struct QueueControl {
    timeout: Duration,
    /// Durations of the last calls, microseconds.
    recent_us: VecDeque<u64>,
    /// How many of the newest calls belong to the current load.
    calls_of_load: usize,
    /// Until then, calls are expected to take longer than their mean.
    careful_until: Option<Instant>,
    /// `None` unless the last batch was full.
    busy: Option<BusyPeriod>,
}

/// A period in which every batch was full: more requests arrived than the batches could take. A batch that is not full
/// has taken every waiting request, and an empty queue ends the load.
#[derive(Debug)]
struct BusyPeriod {
    since: Instant,
    last_dequeue: Instant,
    /// Time between dequeues, microseconds; `dequeued` counts the requests dequeued in it. Both sums fade equally, and
    /// their quotient is the throughput.
    busy_us: u64,
    dequeued: u64,
}

impl QueueControl {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            recent_us: VecDeque::with_capacity(RECENT_CALLS),
            calls_of_load: 0,
            careful_until: None,
            busy: None,
        }
    }

    /// Records a call's duration. Calls longer than the timeout are forgotten once a later call is short: the server
    /// stalled.
    pub(super) fn record_call(&mut self, took: Duration) {
        let timeout_us = micros(self.timeout);
        while took <= self.timeout && self.recent_us.pop_back_if(|last| *last > timeout_us).is_some() {
            self.calls_of_load = self.calls_of_load.saturating_sub(1);
        }
        if self.recent_us.len() == RECENT_CALLS {
            self.recent_us.pop_front();
        }
        self.recent_us.push_back(micros(took));
        self.calls_of_load = RECENT_CALLS.min(self.calls_of_load + 1);
    }

    /// Records that the answer to a call sent at `sent` was late, at `now`. Ignored if the call was sent before every
    /// batch was full: the server was slow, not overloaded.
    pub(super) fn record_late_answer(&mut self, sent: Instant, now: Instant) {
        if self.busy.as_ref().is_some_and(|busy| sent >= busy.since) {
            self.careful_until = Some(now + CAREFUL_TIMEOUTS * self.timeout);
        }
    }

    fn is_careful(&self, now: Instant) -> bool {
        self.careful_until.is_some_and(|until| now < until)
    }

    /// Records that requests were dequeued at `now`.
    pub(super) fn record_dequeue<T>(&mut self, now: Instant, taken: &Taken<T>) {
        self.busy = match self.busy.take() {
            _ if !taken.is_full => None,
            None => Some(BusyPeriod::starting(now)),
            // A longer pause is a server stall, and says nothing about throughput.
            Some(busy) if now - busy.last_dequeue > self.timeout => {
                Some(BusyPeriod { since: busy.since, ..BusyPeriod::starting(now) })
            }
            Some(busy) => Some(busy.after_dequeue(now, taken.items.len())),
        };
    }

    /// Ends the load, because no request waits or the server got no calls for a while. Only its shortest call can be
    /// used later, and only once the next load has had a call.
    pub(super) fn forget(&mut self) {
        self.calls_of_load = 0;
        self.busy = None;
    }

    /// Returns how long the next call will take: requests with less time left would be answered too late. Zero without
    /// an overload, where a late answer costs the caller no more than a refusal. At most seven eighths of the timeout,
    /// so that a server that has become slow still gets the newest requests: they form small batches, which a server
    /// decides sooner.
    pub(super) fn service_time(&self, now: Instant) -> Duration {
        let expected_us = if self.calls_of_load == 0 {
            0
        } else if self.is_careful(now) {
            self.careful_us()
        } else if self.busy.is_some() {
            // The shortest of all calls, because the first calls of a burst take long: the system is busy.
            self.recent_us.iter().copied().min().unwrap_or(0)
        } else {
            0
        };
        Duration::from_micros(expected_us).min(self.timeout / 8 * 7)
    }

    /// Mean of this load's calls plus [`DEVIATIONS`] mean deviations, microseconds.
    fn careful_us(&self) -> u64 {
        let of_load = || self.recent_us.iter().rev().take(self.calls_of_load);
        let calls = self.calls_of_load.max(1) as u64;
        let mean = of_load().sum::<u64>() / calls;
        let deviations: u64 = of_load().map(|took| took.abs_diff(mean)).sum();
        mean + DEVIATIONS * deviations / calls
    }

    /// Returns how many requests can wait and still be decided in time. `None` until every batch was full for one
    /// timeout: no request has waited longer.
    pub(super) fn queue_capacity(&self, now: Instant) -> Option<usize> {
        let busy = self.busy.as_ref().filter(|busy| busy.last_dequeue - busy.since >= self.timeout)?;
        let spare_us = micros(self.timeout.saturating_sub(self.service_time(now)));
        // Only three quarters of the time count: the throughput is a mean, and half of all batches are slower.
        let capacity = (spare_us / 4 * 3).saturating_mul(busy.dequeued).checked_div(busy.busy_us)?;
        Some(usize::try_from(capacity).unwrap_or(usize::MAX))
    }
}

impl BusyPeriod {
    fn starting(now: Instant) -> Self {
        Self { since: now, last_dequeue: now, busy_us: 0, dequeued: 0 }
    }

    fn after_dequeue(self, now: Instant, requests: usize) -> Self {
        Self {
            since: self.since,
            last_dequeue: now,
            busy_us: faded(self.busy_us) + micros(now - self.last_dequeue),
            dequeued: faded(self.dequeued) + requests as u64,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn faded(sum: u64) -> u64 {
    sum - sum / EWMA_DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn taken(requests: usize, is_full: bool) -> Taken<()> {
        Taken { items: vec![(); requests], stale: vec![], left: usize::from(is_full), is_full }
    }

    /// An estimate for a timeout of 15 ms, and the time of its last dequeue.
    struct Case {
        control: QueueControl,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            let (mut control, now) = (QueueControl::new(15 * MS), Instant::now());
            control.record_dequeue(now, &taken(100, true));
            Self { control, now }
        }

        /// Records a call that took `service`, and a full batch of 100 requests `pause` after the last one.
        fn measure(&mut self, service: Duration, pause: Duration) {
            self.now += pause;
            self.control.record_call(service);
            self.control.record_dequeue(self.now, &taken(100, true));
        }

        fn service_time(&self) -> Duration {
            self.control.service_time(self.now)
        }

        fn queue_capacity(&self) -> Option<usize> {
            self.control.queue_capacity(self.now)
        }

        /// Records a late answer to a call sent now.
        fn answers_late(&mut self) {
            self.control.record_late_answer(self.now, self.now);
        }

        /// 100 ms of overload: the queue holds 450.
        fn overload(&mut self) {
            for _ in 0..50 {
                self.measure(3 * MS, 2 * MS);
            }
            assert_eq!(self.queue_capacity(), Some(450));
        }
    }

    #[test]
    fn without_measurements_every_request_is_admitted() {
        let (control, now) = (QueueControl::new(15 * MS), Instant::now());
        assert_eq!((control.service_time(now), control.queue_capacity(now)), (Duration::ZERO, None));
    }

    #[test]
    fn the_queue_holds_what_is_decided_in_three_quarters_of_the_spare_time() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(3 * MS, 2 * MS);
        }
        assert_eq!(case.service_time(), 3 * MS);
        // 50 per millisecond, for 9 of 12 ms.
        assert_eq!(case.queue_capacity(), Some(450));
    }

    #[test]
    fn calls_are_expected_to_be_short_until_an_answer_was_late() {
        let mut case = Case::new();
        for service in [9, 2, 4] {
            case.measure(service * MS, MS);
        }
        assert_eq!(case.service_time(), 2 * MS);
        case.answers_late();
        // The mean is 5 ms; the deviations sum up to 8 ms.
        let careful = Duration::from_micros(5_000 + 2 * 8_000 / 3);
        assert_eq!(case.service_time(), careful);
        case.now += 119 * MS;
        assert_eq!(case.service_time(), careful);
        case.now += MS;
        assert_eq!(case.service_time(), 2 * MS, "eight timeouts after the late answer");
    }

    #[test]
    fn a_late_answer_is_no_overload_if_its_call_was_sent_before_every_batch_was_full() {
        let mut case = Case::new();
        case.measure(9 * MS, MS);
        case.control.record_late_answer(case.now - 2 * MS, case.now);
        case.measure(2 * MS, MS);
        assert_eq!(case.service_time(), 2 * MS, "the first full batch is 1 ms old");
        case.control.record_dequeue(case.now, &taken(99, false));
        case.answers_late();
        assert_eq!(case.service_time(), Duration::ZERO, "no batch is full");
        case.measure(2 * MS, MS);
        assert_eq!(case.service_time(), 2 * MS);
    }

    #[test]
    fn a_stall_says_nothing_of_the_calls_after_it() {
        let mut case = Case::new();
        for service in [2, 2, 22, 22] {
            case.measure(service * MS, MS);
        }
        case.answers_late();
        assert_eq!(case.service_time(), 15 * MS / 8 * 7);
        case.measure(2 * MS, MS);
        assert_eq!(case.service_time(), 2 * MS);
    }

    #[test]
    fn a_varying_service_time_is_expected_to_be_longer_than_its_mean() {
        let mut case = Case::new();
        case.answers_late();
        for _ in 0..50 {
            case.measure(2 * MS, MS);
            case.measure(4 * MS, MS);
        }
        let expected = case.service_time();
        assert!(expected > 4 * MS && expected < 6 * MS, "{expected:?}");
    }

    #[test]
    fn sixteen_calls_are_remembered() {
        let mut case = Case::new();
        for service in [1, 2].into_iter().chain([4; 14]) {
            case.measure(service * MS, MS);
        }
        assert_eq!(case.service_time(), MS);
        case.measure(4 * MS, MS);
        assert_eq!(case.service_time(), 2 * MS);
        case.measure(4 * MS, MS);
        assert_eq!(case.service_time(), 4 * MS);
    }

    #[test]
    fn the_slow_first_calls_of_a_burst_say_nothing_of_the_next_ones() {
        let mut case = Case::new();
        case.measure(MS, MS);
        case.control.forget();
        case.measure(8 * MS, MS);
        assert_eq!(case.service_time(), MS);
        case.answers_late();
        assert_eq!(case.service_time(), 8 * MS);
    }

    #[test]
    fn a_server_that_became_slow_is_still_asked_and_may_become_fast_again() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(100 * MS, 14 * MS);
        }
        assert_eq!(case.service_time(), 15 * MS / 8 * 7);
        assert!(case.queue_capacity().is_some_and(|few| few < 50));
        for _ in 0..50 {
            case.measure(MS, MS);
        }
        assert!(case.service_time() < 3 * MS);
        assert!(case.queue_capacity().is_some_and(|many| many > 500));
    }

    #[test]
    fn a_burst_that_is_over_within_a_timeout_is_not_an_overload() {
        let mut case = Case::new();
        for _ in 0..29 {
            case.measure(MS, MS / 2);
        }
        assert_eq!(case.queue_capacity(), None, "full batches for 14.5 ms");
        case.measure(MS, MS / 2);
        assert!(case.queue_capacity().is_some());
    }

    #[test]
    fn a_batch_with_room_to_spare_ends_the_overload() {
        let mut case = Case::new();
        case.overload();
        case.control.record_dequeue(case.now, &taken(99, false));
        assert_eq!(case.queue_capacity(), None);
        // The next burst comes a second later. The pause does not count towards the throughput.
        case.now += 1_000 * MS;
        case.control.record_dequeue(case.now, &taken(100, true));
        assert_eq!(case.queue_capacity(), None);
        case.overload();
    }

    #[test]
    fn the_stall_of_a_server_does_not_count_towards_its_throughput() {
        let mut case = Case::new();
        case.overload();
        case.measure(1_000 * MS, 1_000 * MS);
        assert_eq!(case.queue_capacity(), None, "the measurement begins again");
    }

    #[test]
    fn nothing_is_remembered_of_a_slow_spell_once_no_request_waits() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(100 * MS, 14 * MS);
        }
        case.control.forget();
        assert_eq!((case.service_time(), case.queue_capacity()), (Duration::ZERO, None));
    }
}
