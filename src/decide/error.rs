//! Why a call fails: the error, the caller's message, and how it is counted and logged. The log has at most one line a
//! minute per kind, because a client can cause any number of errors.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use base::log_throttle::LogThrottle;
use engine::{PlanError, RequestError, StoreError};

use crate::telemetry::metrics::{RequestFailure, RequestMeter};

/// Why a call ends without a decision, or with a decision that its caller does not take. The message is for the log and
/// contains no value of the request; [`for_caller`](Self::for_caller) is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDecision {
    /// A transport does not pass on the request, or the answer to it. The transport says why.
    #[error("{1}")]
    Refused(RequestFailure, Cow<'static, str>),
    /// Part of the request is longer than its transport allows.
    #[error("{0}")]
    TooLong(Cow<'static, str>),
    /// The request is in a format that its transport does not support.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The cause may quote the request, so only the caller gets it.
    #[error("{text}")]
    Quoting { text: &'static str, cause: Box<str> },
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store did not answer, and a limit has the failure policy `error`.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("no rate limit configuration loaded")]
    NoRules,
}

impl NoDecision {
    /// Every transport has this time limit (`net::unfinished`).
    pub(crate) const LATE: Self =
        Self::refused(RequestFailure::Incomplete, "the request did not arrive completely within 2s");
    pub(crate) const ABORTED: Self =
        Self::refused(RequestFailure::Incomplete, "the client ended the request before it was complete");
    pub(crate) const MANY_BYTES: Self =
        Self::refused(RequestFailure::Overloaded, "unfinished requests hold too many bytes");

    pub(crate) const COMPRESSED: Self =
        Self::Unsupported("the message is compressed, which is not supported");
    /// The panic hook has logged the message.
    pub(crate) const PANIC: Self = Self::refused(RequestFailure::Panic, "internal error in the decision");

    /// Refused by the HTTP library.
    pub(crate) const UNREAD_HEADERS: Self = Self::invalid("too many or too long headers");

    pub(crate) const fn refused(failure: RequestFailure, text: &'static str) -> Self {
        Self::Refused(failure, Cow::Borrowed(text))
    }

    pub(crate) const fn invalid(text: &'static str) -> Self {
        Self::refused(RequestFailure::Invalid, text)
    }

    /// `cause` names the field.
    pub(crate) fn malformed(cause: impl Display) -> Self {
        Self::Refused(RequestFailure::Invalid, format!("malformed message: {cause}").into())
    }

    /// For metrics and traces.
    pub fn failure(&self) -> RequestFailure {
        match self {
            Self::Refused(failure, _) => *failure,
            Self::Store(_) => RequestFailure::Store,
            Self::NoRules => RequestFailure::NoRules,
            Self::TooLong(_)
            | Self::Unsupported(_)
            | Self::Quoting { .. }
            | Self::Request(_)
            | Self::Plan(PlanError::Override { .. }) => RequestFailure::Invalid,
        }
    }

    /// Message for the caller. A store error can contain addresses, so the caller gets only its kind.
    pub fn for_caller(&self) -> String {
        match self {
            Self::Quoting { cause, .. } => cause.clone().into(),
            Self::Store(cause) => format!("counters unavailable ({})", cause.kind()),
            other => other.to_string(),
        }
    }
}

/// Failed calls of one port. Clones share the counts and the log interval.
#[derive(Clone, Debug)]
pub struct Failures {
    meter: RequestMeter,
    /// In the order of [`RequestFailure::ALL`].
    lines: Arc<[LogThrottle; RequestFailure::ALL.len()]>,
}

impl Failures {
    pub fn new(meter: RequestMeter) -> Self {
        Self { meter, lines: Arc::default() }
    }

    /// Counts and logs a failed call. Returns the error.
    pub(crate) fn record(&self, error: NoDecision) -> NoDecision {
        let failure = error.failure();
        self.meter.failed(failure);
        // At level debug, because a store outage would flood the log.
        tracing::debug!(%error, "call failed");
        let line = match failure {
            // The store's observers log its errors, as an outage.
            RequestFailure::Store => return error,
            RequestFailure::Invalid => "requests rejected: invalid",
            RequestFailure::Incomplete => "requests rejected: incomplete in time",
            RequestFailure::Overloaded => "requests rejected: too many unfinished",
            RequestFailure::NoRules => "requests rejected: no rules loaded",
            RequestFailure::Unauthenticated => "requests rejected: no token, or a wrong one",
            RequestFailure::Forbidden => "requests rejected: not permitted to their token",
            RequestFailure::Deadline => "calls failed: deadline exceeded",
            RequestFailure::Panic => "requests failed: internal error",
            RequestFailure::Untaken => "calls reset: client does not read responses",
        };
        if let Some(requests) = self.lines[failure as usize].count() {
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
        assert_eq!(error.for_caller(), "counters unavailable (unreachable)");
        assert_eq!(error.failure(), RequestFailure::Store);
    }

    #[test]
    fn the_brief_text_of_a_store_error_has_no_address_user_or_file() {
        let refused = NoConnection {
            full: "10.0.0.1:6379: Connection refused (os error 111)".to_owned(),
            brief: "Connection refused (os error 111)".to_owned(),
            was_open: false,
        };
        let server_error = |text: &str| StoreError::Forbidden(text.to_owned());
        let cases = [
            (StoreError::Unreachable(refused.clone()), "Connection refused"),
            (StoreError::Open(Arc::new(StoreError::Unreachable(refused))), "Connection refused"),
            (StoreError::Timeout, "no answer in time"),
            (server_error("NOPERM User limiter has no permissions to run 'evalsha'"), "NOPERM"),
            (StoreError::Tls { address: "10.0.0.1".to_owned(), reason: "Expired".to_owned() }, "Expired"),
            (StoreError::Malformed("a secret".to_owned()), "a malformed reply"),
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
}
