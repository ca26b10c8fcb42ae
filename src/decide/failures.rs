//! Counts requests without a decision, and logs each kind of failure at most once a minute: a client can cause any
//! number of them.

use std::fmt::Display;
use std::sync::Arc;

use store::log_throttle::LogThrottle;

use crate::telemetry::metrics::{RequestFailure, RequestMeter};

/// The failures of one port. Clones share the numbers and the interval between log lines.
#[derive(Clone, Debug)]
pub struct Failures {
    meter: RequestMeter,
    lines: Arc<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    invalid: LogThrottle,
    incomplete: LogThrottle,
    overloaded: LogThrottle,
    untaken: LogThrottle,
    no_rules: LogThrottle,
    deadline: LogThrottle,
    panic: LogThrottle,
}

impl Failures {
    #[must_use]
    pub fn new(meter: RequestMeter) -> Self {
        Self { meter, lines: Arc::default() }
    }

    /// `reason` must hold no value of the request.
    pub(crate) fn record(&self, failure: RequestFailure, reason: &dyn Display) {
        self.meter.failed(failure);
        // At debug level: an outage of the store would flood the log.
        tracing::debug!(error = %reason, "call failed");
        let (throttle, line) = match failure {
            // Logged by its observers, as an outage.
            RequestFailure::Store => return,
            RequestFailure::Invalid => (&self.lines.invalid, "requests refused: not valid"),
            RequestFailure::Incomplete => (&self.lines.incomplete, "requests refused: not complete in time"),
            RequestFailure::Overloaded => {
                (&self.lines.overloaded, "requests refused: too many are unfinished")
            }
            RequestFailure::NoRules => (&self.lines.no_rules, "requests refused: no rules are loaded yet"),
            RequestFailure::Deadline => {
                (&self.lines.deadline, "calls ended: not decided within their time limit")
            }
            RequestFailure::Panic => (&self.lines.panic, "requests ended by an error of the service"),
            RequestFailure::Untaken => (&self.lines.untaken, "calls reset: the client takes no answers"),
        };
        if let Some(requests) = throttle.count() {
            tracing::warn!(requests, last = %reason, "{line}");
        }
    }
}
