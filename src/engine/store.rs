//! The trait that every store implements, and its contract. Deciding charges is the only operation that the engine
//! needs from outside.
//!
//! A store keeps one counter per key and decides with the kernel of each charge
//! ([`Kernel`](super::algorithm::Kernel)). The memory store runs the kernels. A store that decides elsewhere (the Redis
//! store: in Lua) must give the same answers: it returns the raw numbers of each counter, builds the kernel's
//! [`Facts`](super::algorithm::Facts) from them, and computes the report with
//! [`Kernel::report`](super::algorithm::Kernel::report).

use std::future::Future;
use std::sync::Arc;

use super::charge::Charges;
use super::outcome::Outcomes;

/// Keeps the counters and decides whole requests.
pub trait Store: Send + Sync {
    /// Decides all charges of one request, and records those for which
    /// [`Charge::is_recorded`](super::Charge::is_recorded) is true.
    ///
    /// * Time: the store decides at its own time, in microseconds since the epoch. Processes that share counters share
    ///   the clock.
    /// * Verdicts: each charge gets its verdict from the unchanged counter
    ///   ([`Kernel::verdict`](super::algorithm::Kernel::verdict)).
    /// * All or nothing: [`Charges::is_denied`] combines the verdicts. A charge is recorded if and only if
    ///   [`Charge::is_recorded`](super::Charge::is_recorded). Either no other request is decided on these counters in
    ///   between; or, where a store cannot decide all charges in one step, it records first and undoes the charges of
    ///   a denied request. Then no limit is exceeded, but a request decided in between may be denied.
    /// * Outcomes: one per charge, in order. Each has the verdict, and the time and the facts of the counter afterwards
    ///   ([`CounterSnapshot`](super::CounterSnapshot)). Only a layer that answers without the store skips charges.
    /// * Expiry: a counter may be removed once it equals an unused one
    ///   ([`Kernel::unused_from_us`](super::algorithm::Kernel::unused_from_us)); a full store may remove it earlier.
    /// * Deadline: the answer or an error comes within the store's own deadline; callers set none.
    /// * Cancellation: a dropped future stops waiting. The charges may be recorded all the same.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time. It is then unknown whether the charges were recorded; the store
    /// must not decide them a second time.
    fn decide(&self, charges: &Charges) -> impl Future<Output = Result<Outcomes, StoreError>> + Send;
}

impl<S: Store> Store for Arc<S> {
    fn decide(&self, charges: &Charges) -> impl Future<Output = Result<Outcomes, StoreError>> + Send {
        self.as_ref().decide(charges)
    }
}

/// A store whose counters can be removed. For operators: denied callers may retry at once; recorded usage is lost.
pub trait Reset: Send + Sync {
    /// Removes the counter of every charge. Returns for each whether it existed.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time. Some counters may have been removed.
    fn reset(&self, charges: &Charges) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;
}

/// Why a store did not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The deadline of the decision passed.
    #[error("the store did not answer in time")]
    Timeout,
    /// No connection to the store: it does not accept one, the password file cannot be read, or the store is closed.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The queue of waiting requests is full, or the request would miss its deadline in the queue.
    #[error("too many requests wait for the store")]
    Overloaded,
    /// The store answered with an error.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store's reply cannot be decoded.
    #[error("the store's reply has the wrong shape: {0}")]
    Malformed(String),
    /// The store does not admit this process: wrong credentials, permissions or database.
    #[error("the store denies access: {0}")]
    Forbidden(String),
    /// The circuit breaker is open after too many failures; this is the last of them.
    #[error("the circuit breaker is open, last failure: {0}")]
    Open(Arc<StoreError>),
    /// A limit of the request has the failure policy `error`, so the call fails.
    #[error("no answer from the store, and the failure policy is to fail: {0}")]
    Policy(Box<StoreError>),
}

impl StoreError {
    /// The cause inside [`StoreError::Open`] and [`StoreError::Policy`]; any other error itself.
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
