//! Admission control: how many requests may wait for a server, from its service time, an exponentially weighted
//! moving average (EWMA), and its throughput, the quotient of two sums that decay alike. Pure: time is an argument.
//!
//! Deciding a request after its deadline is wasted work, at the cost of requests that are still in time. So under
//! overload the queue holds as many requests as the server decides in time, and no more. A burst is not an overload:
//! measurements are of the current load only. A batch with room to spare has taken every request that waited, and
//! ends the busy period; an empty queue ends the measurement of the service time too.

use std::time::Duration;

use tokio::time::Instant;

use super::queue::Taken;

/// Each measurement has a weight of 1/8: older ones fade.
const EWMA_DIVISOR: u64 = 8;

/// The expected service time is the mean plus this many mean deviations.
const DEVIATIONS: u64 = 2;

/// The estimate of one server, and the bound on the queue that follows from it. All times in microseconds.
#[derive(Debug)]
pub(super) struct Admission {
    /// The longest that a decision may take.
    timeout: Duration,
    /// EWMA of the service time of calls, and of its deviation from the mean. `None` before the first call.
    service: Option<ServiceTime>,
    /// `None` unless the last batch was full.
    busy: Option<BusyPeriod>,
}

#[derive(Debug)]
struct ServiceTime {
    mean_us: u64,
    deviation_us: u64,
}

/// A time in which every batch was full: more requests came than the batches could take.
#[derive(Debug)]
struct BusyPeriod {
    since: Instant,
    last_dequeue: Instant,
    /// Sum of the time between dequeues, and the requests dequeued in it; both fade alike.
    busy_us: u64,
    dequeued: u64,
}

impl Admission {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, service: None, busy: None }
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
        let busy = self.busy.take().filter(|_| taken.is_full);
        // A longer pause is the stall of a server, and says nothing of its throughput.
        let busy = busy.filter(|busy| now - busy.last_dequeue <= self.timeout);
        self.busy = match busy {
            Some(busy) => Some(busy.after_dequeue(now, taken.items.len())),
            None => taken.is_full.then(|| BusyPeriod::starting(now)),
        };
    }

    /// Forgets every measurement: no request waits, or the server was not asked for a while.
    pub(super) fn forget(&mut self) {
        self.service = None;
        self.busy = None;
    }

    /// How long the next call will take: requests with less time left would be answered too late. At most seven eighths
    /// of the timeout, so that a server that has become slow is still asked: for the newest requests. They make small
    /// batches, which a server decides sooner.
    pub(super) fn service_time(&self) -> Duration {
        let expected_us = self.service.as_ref().map_or(0, |s| s.mean_us + DEVIATIONS * s.deviation_us);
        Duration::from_micros(expected_us).min(self.timeout / 8 * 7)
    }

    /// How many requests can wait and still be decided in time. `None` until every batch was full for one timeout: no
    /// request has waited for longer.
    pub(super) fn queue_capacity(&self) -> Option<usize> {
        let busy = self.busy.as_ref().filter(|busy| busy.last_dequeue - busy.since >= self.timeout)?;
        let spare_us = micros(self.timeout.saturating_sub(self.service_time()));
        // Three quarters of the time: the throughput is a mean, and half of all batches are slower.
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
        admission: Admission,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            let (mut admission, now) = (Admission::new(15 * MS), Instant::now());
            admission.record_dequeue(now, &taken(100, true));
            Self { admission, now }
        }

        /// A call that took `service`, and a full batch of 100 requests `pause` after the last one.
        fn measure(&mut self, service: Duration, pause: Duration) {
            self.now += pause;
            self.admission.record_call(service);
            self.admission.record_dequeue(self.now, &taken(100, true));
        }

        /// An overload of 100 ms: the queue holds 450.
        fn overload(&mut self) {
            for _ in 0..50 {
                self.measure(3 * MS, 2 * MS);
            }
            assert_eq!(self.admission.queue_capacity(), Some(450));
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
            case.measure(100 * MS, 14 * MS);
        }
        assert_eq!(case.admission.service_time(), 15 * MS / 8 * 7);
        assert!(case.admission.queue_capacity().is_some_and(|few| few < 50));
        for _ in 0..50 {
            case.measure(MS, MS);
        }
        assert!(case.admission.service_time() < 3 * MS);
        assert!(case.admission.queue_capacity().is_some_and(|many| many > 500));
    }

    #[test]
    fn a_burst_that_is_over_within_a_timeout_is_not_an_overload() {
        let mut case = Case::new();
        for _ in 0..29 {
            case.measure(MS, MS / 2);
        }
        assert_eq!(case.admission.queue_capacity(), None, "full batches for 14.5 ms");
        case.measure(MS, MS / 2);
        assert!(case.admission.queue_capacity().is_some());
    }

    #[test]
    fn a_batch_with_room_to_spare_ends_the_overload() {
        let mut case = Case::new();
        case.overload();
        case.admission.record_dequeue(case.now, &taken(99, false));
        assert_eq!(case.admission.queue_capacity(), None);
        // The next burst comes a second later. The pause does not count towards the throughput.
        case.now += 1_000 * MS;
        case.admission.record_dequeue(case.now, &taken(100, true));
        assert_eq!(case.admission.queue_capacity(), None);
        case.overload();
    }

    #[test]
    fn the_stall_of_a_server_does_not_count_towards_its_throughput() {
        let mut case = Case::new();
        case.overload();
        case.measure(1_000 * MS, 1_000 * MS);
        assert_eq!(case.admission.queue_capacity(), None, "the measurement begins again");
    }

    #[test]
    fn nothing_is_remembered_of_a_slow_spell_once_no_request_waits() {
        let mut case = Case::new();
        for _ in 0..50 {
            case.measure(100 * MS, 14 * MS);
        }
        case.admission.forget();
        assert_eq!((case.admission.service_time(), case.admission.queue_capacity()), (Duration::ZERO, None));
    }
}
