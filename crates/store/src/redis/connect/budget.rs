//! How long work that is not a decision may take, first of all opening a connection. It needs several round trips, and
//! each may take as long as a decision (`store.redis.timeout`): a server that is near enough to decide in time is near
//! enough to connect to.

use std::time::Duration;

use engine::StoreError;
use tokio::time::timeout;

/// A round trip gets at most this time. A longer timeout allows for a slow server, and not for a greater distance. A
/// server that does not answer must still be noticed.
const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(1);

/// The least time of a step, however short the timeout of a decision is: new connections are slower than open ones.
const LEAST_STEP: Duration = Duration::from_millis(250);

/// Round trips of a TLS handshake before TLS 1.3, which needs one.
pub(super) const TLS_ROUND_TRIPS: u32 = 2;

/// Round trips from a host name to an authenticated connection: DNS, TCP, TLS, AUTH with SELECT.
pub(super) const DIAL_ROUND_TRIPS: u32 = 3 + TLS_ROUND_TRIPS;

/// The times for round trips to one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectBudget {
    round_trip: Duration,
}

impl ConnectBudget {
    /// `timeout` is the longest that a decision may take.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { round_trip: timeout.min(LONGEST_ROUND_TRIP) }
    }

    /// The time for this many round trips, but not less than `least`.
    pub(crate) fn at_least(self, least: Duration, round_trips: u32) -> Duration {
        least.max(self.round_trip * round_trips)
    }

    /// The time for a step of this many round trips.
    pub(super) fn step(self, round_trips: u32) -> Duration {
        self.at_least(LEAST_STEP, round_trips)
    }

    /// Waits for a step of this many round trips.
    ///
    /// # Errors
    /// The error of the step, or [`StoreError::Timeout`].
    pub(crate) async fn wait<T>(
        self,
        round_trips: u32,
        step: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(self.step(round_trips), step).await.unwrap_or(Err(StoreError::Timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_the_timeout_of_a_decision_for_each_round_trip_between_two_bounds() {
        let ms = Duration::from_millis;
        // (timeout of a decision, round trips, time for them)
        let cases = [(15, 1, 250), (15, 5, 250), (100, 3, 300), (900, 2, 1_800), (10_000, 2, 2_000)];
        for (timeout, round_trips, expected) in cases {
            let step = ConnectBudget::new(ms(timeout)).step(round_trips);
            assert_eq!(step, ms(expected), "{timeout} ms, {round_trips} round trips");
        }
    }
}
