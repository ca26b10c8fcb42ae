//! Why a decision call fails, by gRPC or as JSON.

use std::convert::Infallible;

use engine::PlanError;
use engine::wire::RequestError;

use super::MessageError;
use crate::decide::limiter::DecideError;
use crate::telemetry::metrics::RequestFailure;

/// Why a call ends without a decision. The text is for the log and contains no value of the request;
/// [`for_caller`](Self::for_caller) is for the caller.
#[derive(Debug, thiserror::Error)]
pub enum DecisionCallError {
    /// serde_json's reason may quote the request, so only the caller gets it.
    #[error("the body is not a request in JSON")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Decide(#[from] DecideError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request can never be decided.
    InvalidRequest,
    /// The request did not arrive completely.
    IncompleteRequest,
    /// The process has too many unfinished requests; the same request may be decided later.
    Overloaded,
    /// The store did not answer; the same request may be decided later.
    StoreUnavailable,
    /// No rules are loaded yet; the same request may be decided later.
    NoRules,
}

impl ErrorKind {
    pub(super) fn failure(self) -> RequestFailure {
        match self {
            Self::InvalidRequest => RequestFailure::Invalid,
            Self::IncompleteRequest => RequestFailure::Incomplete,
            Self::Overloaded => RequestFailure::Overloaded,
            Self::StoreUnavailable => RequestFailure::Store,
            Self::NoRules => RequestFailure::NoRules,
        }
    }
}

impl DecisionCallError {
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Message(MessageError::Late(_) | MessageError::Aborted) => ErrorKind::IncompleteRequest,
            Self::Message(MessageError::ManyBytes | MessageError::ManyCalls) => ErrorKind::Overloaded,
            Self::Json(_)
            | Self::Message(_)
            | Self::Request(_)
            | Self::Decide(DecideError::Plan(PlanError::Override { .. })) => ErrorKind::InvalidRequest,
            Self::Decide(DecideError::Store(_)) => ErrorKind::StoreUnavailable,
            Self::Decide(DecideError::NoRules) => ErrorKind::NoRules,
        }
    }

    /// The text for the caller. A store's error may contain addresses, so the caller gets only its kind.
    #[must_use]
    pub fn for_caller(&self) -> String {
        match self {
            Self::Json(cause) => cause.to_string(),
            Self::Decide(DecideError::Store(cause)) => {
                format!("the counters are not available ({})", cause.kind())
            }
            other => other.to_string(),
        }
    }
}

/// A gRPC request is decoded before the handler gets it, so its conversion cannot fail.
impl From<Infallible> for DecisionCallError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use engine::{NoConnection, StoreError};

    #[test]
    fn the_caller_never_reads_the_address_of_the_store() {
        let unreachable = StoreError::Unreachable("redis://user:secret@10.0.0.1".into());
        let error = DecisionCallError::from(DecideError::from(StoreError::Policy(Box::new(unreachable))));
        assert_eq!(error.for_caller(), "the counters are not available (unreachable)");
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
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
        let error = DecisionCallError::from(RequestError::EmptyDomain);
        assert_eq!(error.for_caller(), "rate limit domain must not be empty");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }

    #[test]
    fn the_log_does_not_quote_a_malformed_body() {
        let quoting = serde_json::from_str::<u32>("\"secret\"").expect_err("a text is no number");
        let error = DecisionCallError::from(quoting);
        assert!(error.for_caller().contains("secret"), "{}", error.for_caller());
        assert_eq!(error.to_string(), "the body is not a request in JSON");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}
