//! Why a decision call gets no decision, by gRPC, as JSON or from a proxy: the error, what the caller reads of it, how
//! it is counted, and its line in the log. The log has at most one line a minute for each kind, because a client can
//! cause any number of errors.

use std::sync::Arc;
use std::time::Duration;

use engine::wire::RequestError;
use engine::{PlanError, StoreError};
use store::log_throttle::LogThrottle;

use crate::telemetry::metrics::{RequestFailure, RequestMeter};

/// Why a call ends without a decision, or with a decision that its caller does not take. The text is for the log and
/// contains no value of the request; [`for_caller`](Self::for_caller) is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDecision {
    #[error("the method is not POST")]
    Method,
    #[error("the content type is not application/grpc")]
    ContentType,
    #[error("the port does not answer web pages (Origin or Sec-Fetch-Site header)")]
    WebPage,
    #[error("{bytes} bytes in the headers, more than the {max} allowed")]
    LongHeaders { bytes: usize, max: usize },
    /// The HTTP library refuses them.
    #[error("the headers are longer, or more, than this service reads")]
    UnreadHeaders,
    #[error("the trailers of a call are too long")]
    LongTrailers,
    #[error("the message is compressed, which is not supported")]
    Compressed,
    #[error("{bytes} bytes in the message, more than the {max} allowed")]
    LongMessage { bytes: usize, max: usize },
    /// The length of a body of HTTP is not always known.
    #[error("the body has more than the {max} bytes allowed")]
    LongBody { max: usize },
    /// `cause` names the field.
    #[error("the message is malformed: {cause}")]
    Malformed { cause: String },
    /// A header of the caller may have the cost, so only the caller gets the cause.
    #[error("the cost of the request is not a whole number")]
    Cost { cause: String },
    #[error(
        "the headers {first} and {second} contradict each other: the proxy must set one, and remove the other"
    )]
    Contradiction { first: &'static str, second: &'static str },
    #[error("the request has no X-Forwarded-*, X-Original-* or X-Envoy-* header, so no proxy has sent it")]
    Unforwarded,
    /// serde_json's reason may quote the request, so only the caller gets it.
    #[error("the body is not a request in JSON")]
    Json { cause: String },
    #[error("the call has no message")]
    Missing,
    #[error("the message ends too early")]
    Truncated,
    #[error("the call has more than one message")]
    Several,
    #[error("the request did not arrive completely within {0:?}")]
    Late(Duration),
    #[error("the client ended the request before it was complete")]
    Aborted,
    #[error("unfinished requests hold too many bytes")]
    ManyBytes,
    #[error("too many calls are open")]
    ManyCalls,
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store gave no answer, and a limit has the failure policy `error`.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("no rate limit configuration loaded")]
    NoRules,
    #[error("the time of the call is over")]
    Deadline,
    #[error("the client does not take the answer")]
    Untaken,
    /// The panic hook has written the reason to the log.
    #[error("the decision ended by an error of the service")]
    Panic,
}

impl NoDecision {
    /// The kind under which metrics and traces count the error.
    #[must_use]
    pub fn failure(&self) -> RequestFailure {
        match self {
            Self::Late(_) | Self::Aborted => RequestFailure::Incomplete,
            Self::ManyBytes | Self::ManyCalls => RequestFailure::Overloaded,
            Self::Store(_) => RequestFailure::Store,
            Self::NoRules => RequestFailure::NoRules,
            Self::Deadline => RequestFailure::Deadline,
            Self::Untaken => RequestFailure::Untaken,
            Self::Panic => RequestFailure::Panic,
            Self::Method
            | Self::ContentType
            | Self::WebPage
            | Self::LongHeaders { .. }
            | Self::UnreadHeaders
            | Self::LongTrailers
            | Self::Compressed
            | Self::LongMessage { .. }
            | Self::LongBody { .. }
            | Self::Malformed { .. }
            | Self::Cost { .. }
            | Self::Contradiction { .. }
            | Self::Unforwarded
            | Self::Json { .. }
            | Self::Missing
            | Self::Truncated
            | Self::Several
            | Self::Request(_)
            | Self::Plan(PlanError::Override { .. }) => RequestFailure::Invalid,
        }
    }

    /// The text for the caller. A store's error may contain addresses, so the caller gets only its kind.
    #[must_use]
    pub fn for_caller(&self) -> String {
        match self {
            Self::Json { cause } | Self::Cost { cause } => cause.clone(),
            Self::Store(cause) => format!("the counters are not available ({})", cause.kind()),
            other => other.to_string(),
        }
    }
}

impl From<serde_json::Error> for NoDecision {
    fn from(error: serde_json::Error) -> Self {
        Self::Json { cause: error.to_string() }
    }
}

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

    /// Counts and logs a call without a decision. Returns the error.
    pub(crate) fn record(&self, error: NoDecision) -> NoDecision {
        let failure = error.failure();
        self.meter.failed(failure);
        // The level is debug, because an outage of the store would flood the log.
        tracing::debug!(%error, "call failed");
        let (throttle, line) = match failure {
            // The observers of the store log its errors, as an outage.
            RequestFailure::Store => return error,
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
            tracing::warn!(requests, last = %error, "{line}");
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::NoConnection;

    #[test]
    fn the_caller_never_reads_the_address_of_the_store() {
        let unreachable = StoreError::Unreachable("redis://user:secret@10.0.0.1".into());
        let error = NoDecision::from(StoreError::Policy(Box::new(unreachable)));
        assert_eq!(error.for_caller(), "the counters are not available (unreachable)");
        assert_eq!(error.failure(), RequestFailure::Store);
    }

    #[test]
    fn the_brief_text_of_a_store_error_has_no_address_user_or_file() {
        let refused = NoConnection {
            full: "10.0.0.1:6379: Connection refused (os error 111)".to_owned(),
            brief: "Connection refused (os error 111)".to_owned(),
        };
        let server_error = |text: &str| StoreError::Forbidden(text.to_owned());
        let cases = [
            (StoreError::Unreachable(refused.clone()), "Connection refused"),
            (StoreError::Open(Arc::new(StoreError::Unreachable(refused))), "Connection refused"),
            (StoreError::Timeout, "no answer in time"),
            (server_error("NOPERM User limiter has no permissions to run 'evalsha'"), "NOPERM"),
            (StoreError::Tls { address: "10.0.0.1".to_owned(), reason: "Expired".to_owned() }, "Expired"),
            (StoreError::Malformed("a secret".to_owned()), "a reply of the wrong shape"),
        ];
        for (error, brief) in cases {
            assert_eq!(error.brief(), brief);
        }
    }

    #[test]
    fn the_caller_reads_what_is_wrong_with_the_request() {
        let error = NoDecision::from(RequestError::EmptyDomain);
        assert_eq!(error.for_caller(), "rate limit domain must not be empty");
        assert_eq!(error.failure(), RequestFailure::Invalid);
    }

    #[test]
    fn the_log_does_not_quote_a_malformed_body() {
        let quoting = serde_json::from_str::<u32>("\"secret\"").expect_err("a text is no number");
        let error = NoDecision::from(quoting);
        assert!(error.for_caller().contains("secret"), "{}", error.for_caller());
        assert_eq!(error.to_string(), "the body is not a request in JSON");
        assert_eq!(error.failure(), RequestFailure::Invalid);
    }
}
