//! The port: the one thing the engine asks of the world.

use std::future::Future;
use std::sync::Arc;

use super::{Charges, Outcomes};

/// Keeps the counters and decides whole requests.
pub trait Store: Send + Sync {
    /// Decides all charges of one request at once: either every prepaid charge is recorded or none is, and postpaid
    /// ones always are (see [`Charges::is_denied`]). Answers in the order of the charges.
    ///
    /// # Errors
    /// [`StoreError`] when no answer could be had in time. Whether the charges were recorded is then unknown.
    fn decide(&self, charges: &Charges) -> impl Future<Output = Result<Outcomes, StoreError>> + Send;
}

/// A store whose counters can be forgotten. For operators: whoever is denied may go on at once, and whoever paid has lost
/// what was recorded.
pub trait Reset: Send + Sync {
    /// Makes the counters of all charges as if never used. Tells of each whether there was anything to forget.
    ///
    /// # Errors
    /// [`StoreError`] when no answer could be had in time. Some counters may be gone then.
    fn reset(&self, charges: &Charges) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;
}

/// Why a store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The deadline for one decision passed.
    #[error("the store did not answer in time")]
    Timeout,
    /// No connection to the store.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// More requests wait than the queue holds.
    #[error("too many requests wait for the store")]
    Overloaded,
    /// The store answered with an error of its own.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store answered something that is no answer.
    #[error("the store's reply has the wrong shape: {0}")]
    Malformed(String),
    /// The store turns this process away: its credentials, its permissions or its database are wrong.
    #[error("the store turns us away: {0}")]
    Forbidden(String),
    /// It failed so often that it is not asked at present; this is how, the last time.
    #[error("the store is not asked at present: {0}")]
    Open(Arc<StoreError>),
    /// A limit's failure policy is `error`: the call is to fail.
    #[error("no answer from the store, and the failure policy is to fail: {0}")]
    Policy(Box<StoreError>),
}

impl StoreError {
    /// What lies beneath: without the words of those who only pass it on.
    #[must_use]
    pub fn root(&self) -> &Self {
        match self {
            Self::Open(cause) => cause.root(),
            Self::Policy(cause) => cause.root(),
            _ => self,
        }
    }

    /// A short name for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Overloaded => "overloaded",
            Self::Refused(_) => "refused",
            Self::Malformed(_) => "malformed",
            Self::Forbidden(_) => "forbidden",
            Self::Open(_) => "breaker_open",
            Self::Policy(cause) => cause.kind(),
        }
    }
}
