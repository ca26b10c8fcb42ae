//! Contract of stores: their traits, and why a store did not answer.
//!
//! A store keeps one counter per key and decides with each charge's [`Kernel`](crate::algorithm::Kernel). The Redis
//! store decides in Lua with the same answers: it builds a [`CounterReading`](crate::algorithm::CounterReading) from
//! each counter's raw numbers and reports it with [`Kernel::report`](crate::algorithm::Kernel::report).

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::limit::algorithm::Verdict;
use crate::request::plan::charge::{Charge, Charges, Outcome, Outcomes};

/// Keeps the counters and decides whole requests.
pub trait Store: Send + Sync {
    /// Decides all charges of one request, and records those for which
    /// [`Charge::is_recorded`](crate::Charge::is_recorded) is true.
    ///
    /// * Time: the store decides at its own time, in microseconds since the epoch. Processes that share counters share
    ///   the clock.
    /// * Verdicts: each charge gets its verdict ([`Kernel::verdict`](crate::algorithm::Kernel::verdict)) from the
    ///   counter as it was before the request, or as earlier charges of the request left it: an
    ///   [independent](crate::Charge::is_independent) charge takes effect before the next one is decided.
    /// * All or nothing: [`Charges::is_denied`] combines the verdicts. A charge is recorded if and only if
    ///   [`Charge::is_recorded`](crate::Charge::is_recorded). Either no other request is decided on these counters in
    ///   between, or, if a store cannot decide all charges in one step, it records first and undoes the charges of a
    ///   denied request. In that case no limit is exceeded, but a request decided in between may be denied.
    /// * Settles: a charge with [`Role::Settle`](crate::Role::Settle) comes alone, see [`Charges::parts`].
    /// * Outcomes: one per charge, in order. Each has the verdict, and the time and the reading of the counter after
    ///   this charge ([`CounterSnapshot`](crate::CounterSnapshot)).
    /// * Expiry: a counter may be removed once it equals an unused one
    ///   ([`Kernel::unused_from_us`](crate::algorithm::Kernel::unused_from_us)); a full store may remove it earlier.
    /// * Deadline: the answer or an error comes within the store's own deadline; callers set none.
    /// * Cancellation: a dropped future stops waiting. The charges may still be recorded.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time. Whether the charges were recorded is then unknown; the store must
    /// not decide them a second time. [`StoreError::Partial`] if some charges have an answer.
    fn decide(&self, charges: &Charges) -> impl Future<Output = Result<Outcomes, StoreError>> + Send;
}

impl<S: Store> Store for Arc<S> {
    fn decide(&self, charges: &Charges) -> impl Future<Output = Result<Outcomes, StoreError>> + Send {
        self.as_ref().decide(charges)
    }
}

/// A store whose counters can be removed or set, for operators. Denied callers may retry immediately; recorded usage is
/// lost.
pub trait Reset: Send + Sync {
    /// Removes the counter of every charge. Returns for each whether it existed.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time. Some counters may have been removed.
    fn reset(&self, charges: &Charges) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Replaces a charge's counter: removes it, and records the charge on the unused counter, in one step. Nothing
    /// is decided in between. The charge is postpaid, so it is recorded even if it does not fit.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time. The counter may have been replaced.
    fn replace(&self, key: &str, charge: &Charge)
    -> impl Future<Output = Result<Outcome, StoreError>> + Send;

    /// Returns a counter's units that this process borrowed and still holds. The counter shows them as used.
    fn borrowed(&self, _key: &str) -> u64 {
        0
    }

    /// Returns when the open slots of a counter end, earliest first, at most [`SHOWN_SLOTS`]. Times are microseconds
    /// since the epoch. Empty for a counter without slots.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time.
    fn slot_ends(&self, key: &str, now_us: u64) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;
}

/// Most slots of a counter that [`Reset::slot_ends`] returns.
pub const SHOWN_SLOTS: usize = 100;

/// Lists keys page by page, for operators. Delays no decision.
pub trait Listing: Send + Sync {
    /// Returns the next page of the keys that begin with `start`, followed by `|` or `}`: the first page without a
    /// cursor. A key that exists from the first page to the last is on one of them, or on several. `None` if the cursor
    /// does not belong to the store.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time. The cursor is still valid.
    fn list(
        &self,
        start: &str,
        cursor: Option<&str>,
    ) -> impl Future<Output = Result<Option<KeyPage>, StoreError>> + Send;
}

/// Some keys of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// Without the store's prefix. At most some hundred.
    pub keys: Vec<String>,
    /// `None` after the last page.
    pub next: Option<String>,
}

/// Why a store did not answer. The failure policies of the limits then decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The deadline of the decision passed.
    #[error("the store did not answer in time")]
    Timeout,
    /// No connection: the store does not accept one, it broke, the password file is unreadable, or the store is closed.
    #[error("cannot reach the store: {}", .0.full)]
    Unreachable(NoConnection),
    /// The TLS handshake failed because one side rejected the other's certificate. An outage has other errors.
    #[error("the TLS handshake with {address} failed: {reason}")]
    Tls {
        address: String,
        /// What is wrong, without the address.
        reason: String,
    },
    /// The request queue is full, or the request would miss its deadline in the queue.
    #[error("too many requests wait for the store")]
    Overloaded,
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store is a replica, which accepts no writes.
    #[error("the store refused: {0}")]
    ReadOnly(String),
    #[error("the store sent a malformed reply: {0}")]
    Malformed(String),
    /// The store rejects this process: wrong credentials, permissions or database.
    #[error("the store denies access: {0}")]
    Forbidden(String),
    /// The circuit breaker is open after too many failures; this is the last of them.
    #[error("the circuit breaker is open, last failure: {0}")]
    Open(Arc<StoreError>),
    /// Only some charges of the request have an answer.
    #[error("no answer for a part of the request: {}", .0.failure)]
    Partial(Box<PartialOutcomes>),
    /// A limit of the request has the failure policy `error`, so the call fails.
    #[error("no answer from the store, and the failure policy is to fail: {0}")]
    Policy(Box<StoreError>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoConnection {
    /// For the log: with the address or the file.
    pub full: String,
    /// For public endpoints: without the address or the file.
    pub brief: String,
    /// `true` if the connection was open, so that the store may have decided.
    pub was_open: bool,
}

/// For a reason without an address.
impl<T: Into<String>> From<T> for NoConnection {
    fn from(reason: T) -> Self {
        let full = reason.into();
        Self { brief: full.clone(), full, was_open: false }
    }
}

/// The outcomes of a request of which some charges have no answer.
///
/// Unless the known verdicts already deny the request, its verdict depends on the missing ones. Recorded charges stay
/// recorded until the request is decided: [`PartialOutcomes::keep`] admits it; if all clones are dropped without that,
/// the store undoes the charges.
#[derive(Clone, Debug)]
pub struct PartialOutcomes {
    /// One per charge, in order: as in [`Outcomes`], or why there is no outcome.
    by_charge: Vec<Result<Outcome, StoreError>>,
    /// The first failure in time.
    failure: StoreError,
    /// `None` if no recorded charge could have to be undone.
    reservation: Option<Arc<dyn Reservation>>,
}

/// Recorded charges of an undecided request. Dropped without [`Reservation::keep`], they are undone.
pub trait Reservation: fmt::Debug + Send + Sync {
    /// Admits the request: the charges stay recorded.
    fn keep(&self);
}

impl PartialOutcomes {
    /// Returns all outcomes if there is one for each charge.
    ///
    /// # Errors
    /// The first failure if there is no outcome, else [`StoreError::Partial`].
    pub fn collect(
        by_charge: Vec<Result<Outcome, StoreError>>,
        reservation: Option<Arc<dyn Reservation>>,
    ) -> Result<Outcomes, StoreError> {
        let Some(failure) = by_charge.iter().find_map(|result| result.as_ref().err()).cloned() else {
            return Ok(by_charge.into_iter().flatten().collect());
        };
        if by_charge.iter().all(Result::is_err) {
            return Err(failure);
        }
        Err(StoreError::Partial(Box::new(Self { by_charge, failure, reservation })))
    }

    /// The first failure in time.
    pub fn failure(&self) -> &StoreError {
        &self.failure
    }

    /// Admits the request: the recorded charges stay.
    pub fn keep(&self) {
        if let Some(reservation) = &self.reservation {
            reservation.keep();
        }
    }
}

/// Compares the outcomes only: each reservation belongs to one request.
impl PartialEq for PartialOutcomes {
    fn eq(&self, other: &Self) -> bool {
        self.by_charge == other.by_charge
    }
}

impl Eq for PartialOutcomes {}

impl StoreError {
    /// The cause inside [`StoreError::Open`], [`StoreError::Partial`] and [`StoreError::Policy`]; any other error
    /// itself.
    pub fn root(&self) -> &Self {
        match self {
            Self::Open(cause) => cause.root(),
            Self::Partial(partial) => partial.failure.root(),
            Self::Policy(cause) => cause.root(),
            _ => self,
        }
    }

    /// `true` if the store has certainly not decided: the request was not sent, or refused unread.
    pub fn is_unseen(&self) -> bool {
        match self {
            Self::Open(_) | Self::Overloaded | Self::Tls { .. } | Self::Forbidden(_) => true,
            Self::Unreachable(reason) => !reason.was_open,
            Self::Policy(cause) => cause.is_unseen(),
            Self::Timeout | Self::Refused(_) | Self::ReadOnly(_) | Self::Malformed(_) | Self::Partial(_) => {
                false
            }
        }
    }

    /// Returns the outcome of the charge at `index` despite this error.
    ///
    /// # Errors
    /// Why the charge has no answer.
    pub fn outcome(&self, index: usize) -> Result<Outcome, &Self> {
        match self {
            Self::Partial(partial) => partial.by_charge[index].as_ref().copied(),
            _ => Err(self),
        }
    }

    /// `true` if the charge at `index` is over its limit; `unknown` if it has no answer.
    pub fn is_over(&self, index: usize, unknown: bool) -> bool {
        self.outcome(index).map_or(unknown, |outcome| outcome.verdict == Verdict::Over)
    }

    /// The cause for public endpoints: without addresses, files, users or command arguments. For an error reply of the
    /// server, its code, such as `LOADING`.
    pub fn brief(&self) -> &str {
        match self.root() {
            Self::Timeout => "no answer in time",
            Self::Unreachable(reason) => {
                reason.brief.split_once(" (os error").map_or(reason.brief.as_str(), |(text, _)| text)
            }
            Self::Tls { reason, .. } => reason,
            Self::Refused(text) | Self::ReadOnly(text) | Self::Forbidden(text) => {
                text.split_whitespace().next().unwrap_or_default()
            }
            Self::Malformed(_) => "a malformed reply",
            other => other.kind(),
        }
    }

    /// A short name for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable(_) | Self::Tls { .. } => "unreachable",
            Self::Overloaded => "overloaded",
            Self::Refused(_) | Self::ReadOnly(_) => "refused",
            Self::Malformed(_) => "malformed",
            Self::Forbidden(_) => "forbidden",
            Self::Open(_) => "breaker_open",
            Self::Partial(partial) => partial.failure.kind(),
            Self::Policy(cause) => cause.kind(),
        }
    }
}
