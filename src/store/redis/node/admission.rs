//! Admission control: how many requests may wait for a server, from its service time, an exponentially weighted
//! moving average (EWMA), and its throughput, the quotient of two sums that decay alike. Pure: time is an argument.
//!
//! Deciding a request after its deadline is wasted work, at the cost of requests that are still in time. So the queue
//! holds as many requests as the server decides in time, and no more.

use std::time::Duration;

use tokio::time::Instant;

use super::queue::Taken;

/// Each measurement has a weight of 1/8: older ones fade.
const EWMA_DIVISOR: u64 = 8;
/// Dequeues from a queue that was never empty, before the throughput is known well enough to bound the queue.
const MIN_SAMPLES: u64 = 8;

/// The expected service time is the mean plus this many mean deviations.
const DEVIATIONS: u64 = 2;

/// The estimate of one server, and the bound on the queue that follows from it. All times in microseconds.
#[derive(Debug)]
pub(super) struct Admission {
    /// The longest that a decision may take.
    timeout: Duration,
    /// EWMA of the service time of calls, and of its deviation from the mean. `None` before the first call.
    service: Option<ServiceTime>,
    /// Sum of the time between dequeues while the queue was never empty, and the requests dequeued in it; both fade
    /// alike.
    busy_us: u64,
    dequeued: u64,
    samples: u64,
    /// The last dequeue; `None` when the time since then says nothing of the throughput.
    last_dequeue: Option<Instant>,
    /// Whether the last dequeue left requests waiting.
    was_busy: bool,
}

#[derive(Debug)]
struct ServiceTime {
    mean_us: u64,
    deviation_us: u64,
}

impl Admission {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            service: None,
            busy_us: 0,
            dequeued: 0,
            samples: 0,
            last_dequeue: None,
            was_busy: false,
        }
    }

    /// Records how long a call took.
    pub(super) fn record_call(&mut self, took: Duration) {
        let took_us = micros(took);
        match &mut self.service {
            None => self.service = Some(ServiceTime { mean_us: took_us, deviation_us: 0 }),
            Some(ServiceTime { mean_us, deviation_us }) => {
                *deviation_us = faded(*deviation_us) + mean_us.abs_diff(took_us) / EWMA_DIVISOR;
                *mean_us = faded(*mean_us) + took_us / EWMA_DIVISOR;
            }
        }
    }

    /// Records that requests were taken from the queue at `now`.
    pub(super) fn record_dequeue<T>(&mut self, now: Instant, taken: &Taken<T>) {
        let last = self.last_dequeue.replace(now);
        let was_busy = std::mem::replace(&mut self.was_busy, taken.left > 0) || taken.overflowed;
        if let Some(last) = last.filter(|_| was_busy) {
            self.busy_us = faded(self.busy_us) + micros(now - last);
            self.dequeued = faded(self.dequeued) + taken.items.len() as u64;
            self.samples = self.samples.saturating_add(1);
        }
    }

    /// Records that the server was not asked for a while: the time until the next dequeue must not count towards the
    /// throughput.
    pub(super) fn record_interruption(&mut self) {
        self.last_dequeue = None;
    }

    /// How long the next call will take: requests with less time left would be answered too late. At most half of the
    /// timeout, so that a server that has become slow is still asked.
    pub(super) fn service_time(&self) -> Duration {
        let expected_us = self.service.as_ref().map_or(0, |s| s.mean_us + DEVIATIONS * s.deviation_us);
        Duration::from_micros(expected_us).min(self.timeout / 2)
    }

    /// How many requests can wait and still be decided in time. `None` until there are enough measurements: a burst is
    /// not an overload.
    pub(super) fn queue_capacity(&self) -> Option<usize> {
        if self.samples < MIN_SAMPLES {
            return None;
        }
        let spare_us = micros(self.timeout.saturating_sub(self.service_time()));
        // Three quarters of the time: the throughput is a mean, and half of all batches are slower.
        let capacity = (spare_us / 4 * 3).saturating_mul(self.dequeued).checked_div(self.busy_us)?;
        Some(usize::try_from(capacity).unwrap_or(usize::MAX))
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

    fn taken(requests: usize, left: usize) -> Taken<()> {
        Taken { items: vec![(); requests], stale: vec![], left, overflowed: false }
    }

    /// An estimate for a timeout of 15 ms, and the time of its last dequeue.
    struct Case {
        admission: Admission,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            let (mut admission, now) = (Admission::new(15 * MS), Instant::now());
            admission.record_dequeue(now, &taken(100, 1));
            Self { admission, now }
        }

        /// A call that took `service`, and a dequeue of 100 requests from a busy queue `pause` after the last one.
        fn measure(&mut self, service: Duration, pause: Duration) {
            self.now += pause;
            self.admission.record_call(service);
            self.admission.record_dequeue(self.now, &taken(100, 1));
        }
    }

    #[test]
    fn without_measurements_every_request_is_admitted() {
        let admission = Admission::new(15 * MS);
        assert_eq!((admission.service_time(), admission.queue_capacity()), (Duration::ZERO, None));
    }

    #[test]
    fn the_queue_holds_what_is_decided_in_three_quarters_of_the_spare_time() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(3 * MS, 2 * MS);
        }
        assert_eq!(case.admission.service_time(), 3 * MS);
        // 50 a millisecond, for 9 of 12 ms.
        assert_eq!(case.admission.queue_capacity(), Some(450));
    }

    #[test]
    fn a_varying_service_time_is_expected_to_be_longer_than_its_mean() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(2 * MS, MS);
            case.measure(4 * MS, MS);
        }
        let expected = case.admission.service_time();
        assert!(expected > 4 * MS && expected < 6 * MS, "{expected:?}");
    }

    #[test]
    fn a_server_that_became_slow_is_still_asked_and_may_become_fast_again() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(100 * MS, 100 * MS);
        }
        assert_eq!(case.admission.service_time(), 15 * MS / 2);
        assert!(case.admission.queue_capacity().is_some_and(|few| few < 10));
        for _ in 0..50 {
            case.measure(MS, MS);
        }
        assert!(case.admission.service_time() < 3 * MS);
        assert!(case.admission.queue_capacity().is_some_and(|many| many > 500));
    }

    #[test]
    fn a_burst_is_not_an_overload() {
        let mut case = Case::new();
        for _ in 0..7 {
            case.measure(100 * MS, 100 * MS);
        }
        assert_eq!(case.admission.queue_capacity(), None, "seven busy dequeues are too few");
        case.measure(100 * MS, 100 * MS);
        assert!(case.admission.queue_capacity().is_some());
    }

    #[test]
    fn only_time_in_which_the_queue_was_busy_and_the_server_was_asked_counts() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(3 * MS, 2 * MS);
        }
        let capacity = case.admission.queue_capacity();
        case.admission.record_dequeue(case.now, &taken(0, 0));
        let measured = case.admission.queue_capacity();
        case.now += 1_000 * MS;
        case.admission.record_dequeue(case.now, &taken(1, 1));
        assert_eq!(case.admission.queue_capacity(), measured, "the queue was empty for a second");
        case.admission.record_interruption();
        case.now += 1_000 * MS;
        case.admission.record_dequeue(case.now, &taken(1, 1));
        assert_eq!(case.admission.queue_capacity(), measured, "the server was not asked for a second");
        case.now += 1_000 * MS;
        case.admission.record_dequeue(case.now, &taken(1, 1));
        assert!(case.admission.queue_capacity() < capacity, "a request a second is slow");
    }
}
