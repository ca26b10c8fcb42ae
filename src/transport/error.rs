//! Why a call has no decision, whichever door it came through.

use super::bounds::RequestError;
use crate::engine::PlanError;
use crate::limiter::DecideError;

/// A call that ends without a decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The request is incomplete or out of bounds.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The limiter could not decide.
    #[error(transparent)]
    Decide(#[from] DecideError),
}

/// Whose turn it is to do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller's request can never be decided.
    Caller,
    /// The store did not answer; the same request may be decided later.
    Store,
}

impl CallError {
    /// Who is to blame.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Request(_) | Self::Decide(DecideError::Plan(PlanError::Override { .. })) => Blame::Caller,
            Self::Decide(DecideError::Store(_)) => Blame::Store,
        }
    }

    /// What the caller is told. The log has the whole error; a store's own words may hold addresses, which are no
    /// caller's business.
    #[must_use]
    pub fn for_caller(&self) -> String {
        match self {
            Self::Decide(DecideError::Store(cause)) => {
                format!("the counters are not available ({})", cause.kind())
            }
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::StoreError;

    #[test]
    fn the_caller_never_reads_where_the_store_is() {
        let refused = StoreError::Unreachable("redis://user:secret@10.0.0.1".to_owned());
        let error = CallError::from(DecideError::from(StoreError::Policy(Box::new(refused))));
        assert_eq!(error.for_caller(), "the counters are not available (unreachable)");
        assert_eq!(error.blame(), Blame::Store);
    }

    #[test]
    fn the_caller_reads_what_is_wrong_with_the_request() {
        let error = CallError::from(RequestError::EmptyDomain);
        assert_eq!(error.for_caller(), "rate limit domain must not be empty");
        assert_eq!(error.blame(), Blame::Caller);
    }
}
