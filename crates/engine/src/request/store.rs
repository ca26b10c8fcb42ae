//! The trait that every store implements, and its contract. Deciding charges is the only operation that the engine
//! needs from outside.
//!
//! A store keeps one counter per key and decides with the kernel of each charge ([`Kernel`](crate::algorithm::Kernel)).
//! The memory store runs the kernels. The Redis store decides in Lua, and must give the same answers: from the raw
//! numbers of each counter it builds the kernel's [`CounterReading`], and computes the report with
//! [`Kernel::report`](crate::algorithm::Kernel::report).

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::algorithm::{CounterReading, Report, Verdict};
use crate::limit::spec::FailurePolicy;
use crate::request::plan::charge::{Charges, ChargesPart};

/// Keeps the counters and decides whole requests.
pub trait Store: Send + Sync {
    /// Decides all charges of one request, and records those for which
    /// [`Charge::is_recorded`](crate::Charge::is_recorded) is true.
    ///
    /// * Time: the store decides at its own time, in microseconds since the epoch. Processes that share counters share
    ///   the clock.
    /// * Verdicts: each charge gets its verdict from the counter as it was before the request
    ///   ([`Kernel::verdict`](crate::algorithm::Kernel::verdict)), or as earlier charges of the request left it: a
    ///   charge that is [independent](crate::Charge::is_independent) of the others takes effect before the next one
    ///   is decided.
    /// * All or nothing: [`Charges::is_denied`] combines the verdicts. A charge is recorded if and only if
    ///   [`Charge::is_recorded`](crate::Charge::is_recorded). Either no other request is decided on these counters in
    ///   between; or, where a store cannot decide all charges in one step, it records first and undoes the charges of
    ///   a denied request. Then no limit is exceeded, but a request decided in between may be denied.
    /// * Settles: a charge with [`Role::Settle`](crate::Role::Settle) comes alone, see [`Charges::parts`].
    /// * Outcomes: one per charge, in order. Each has the verdict, and the time and the reading of the counter after
    ///   this charge ([`CounterSnapshot`]).
    /// * Expiry: a counter may be removed once it equals an unused one
    ///   ([`Kernel::unused_from_us`](crate::algorithm::Kernel::unused_from_us)); a full store may remove it earlier.
    /// * Deadline: the answer or an error comes within the store's own deadline; callers set none.
    /// * Cancellation: a dropped future stops waiting. The charges may be recorded all the same.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer in time. It is then unknown whether the charges were recorded; the store
    /// must not decide them a second time. [`StoreError::Partial`] if some charges have an answer.
    fn decide(&self, charges: &Charges) -> impl Future<Output = Result<Outcomes, StoreError>> + Send;
}

impl<S: Store> Store for Arc<S> {
    fn decide(&self, charges: &Charges) -> impl Future<Output = Result<Outcomes, StoreError>> + Send {
        self.as_ref().decide(charges)
    }
}

/// What made a decision: the store, a cache of its denials, or a failure policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store, from this counter.
    Store(CounterSnapshot),
    /// A denial of the store that is repeated, with the counter as it is known now.
    DenyCache(CounterSnapshot),
    /// The limit's failure policy, because the store could not decide.
    Policy(FailurePolicy),
}

/// A counter after a decision, and the time of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// The store's time, microseconds since the epoch.
    pub now_us: u64,
    pub reading: CounterReading,
}

/// The decision about one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The numbers of the limit after the decision.
    pub report: Report,
    pub decided_by: DecidedBy,
}

/// The outcomes of all charges of a request, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcomes {
    pub by_charge: SmallVec<[Outcome; 2]>,
}

impl Outcomes {
    /// Whether the charge at `index` is over its limit.
    #[must_use]
    pub fn is_over(&self, index: usize) -> bool {
        self.by_charge[index].verdict == Verdict::Over
    }

    /// The outcomes of a request whose parts were decided one by one: each part of [`Charges::parts`] once.
    pub fn of_parts<'p>(decided: impl Iterator<Item = (&'p ChargesPart, Self)>) -> Self {
        let indexed = |(part, outcomes): (&'p ChargesPart, Self)| part.indices.iter().zip(outcomes.by_charge);
        let mut all: Vec<(&usize, Outcome)> = decided.flat_map(indexed).collect();
        all.sort_by_key(|&(index, _)| index);
        all.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// The outcomes of a store that decides a request at once: of all charges together, or of the parts one by one.
    pub fn decided_in_parts(charges: &Charges, mut decide: impl FnMut(&Charges) -> Self) -> Self {
        if !charges.has_settles() {
            return decide(charges);
        }
        let parts = charges.parts();
        Self::of_parts(parts.iter().map(|part| (part, decide(&part.charges))))
    }
}

impl FromIterator<Outcome> for Outcomes {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        Self { by_charge: outcomes.into_iter().collect() }
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
    #[error("cannot reach the store: {}", .0.full)]
    Unreachable(NoConnection),
    /// The TLS handshake failed: one side does not accept the other's certificate. An outage has other errors.
    #[error("the TLS handshake with {address} failed: {reason}")]
    Tls {
        address: String,
        /// What is wrong, without the address.
        reason: String,
    },
    /// The queue of waiting requests is full, or the request would miss its deadline in the queue.
    #[error("too many requests wait for the store")]
    Overloaded,
    /// The store answered with an error.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store is a replica, which accepts no writes.
    #[error("the store refused: {0}")]
    ReadOnly(String),
    /// The store's reply cannot be decoded.
    #[error("the store sent a malformed reply: {0}")]
    Malformed(String),
    /// The store does not admit this process: wrong credentials, permissions or database.
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

/// Why there is no connection to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoConnection {
    /// For the log: with the address or the file.
    pub full: String,
    /// For public endpoints: without the address or the file.
    pub brief: String,
}

/// A reason without an address.
impl<T: Into<String>> From<T> for NoConnection {
    fn from(reason: T) -> Self {
        let full = reason.into();
        Self { brief: full.clone(), full }
    }
}

/// The outcomes of a request of which some charges have no answer.
///
/// Unless the known verdicts already deny the request, its verdict depends on the missing ones. Until the request is
/// decided, the charges that were recorded stay recorded. [`PartialOutcomes::keep`] says that the request is admitted;
/// if all clones are dropped without it, the store undoes the charges.
#[derive(Clone, Debug)]
pub struct PartialOutcomes {
    /// One per charge, in order: the same as in [`Outcomes`], or why there is no outcome.
    by_charge: Vec<Result<Outcome, StoreError>>,
    /// The failure that came first.
    failure: StoreError,
    /// `None` if nothing is recorded that the verdict could undo.
    reservation: Option<Arc<dyn Reservation>>,
}

/// Recorded charges of a request that is not decided yet. Dropped without [`Reservation::keep`], they are undone.
pub trait Reservation: fmt::Debug + Send + Sync {
    /// The request is admitted: the charges stay recorded.
    fn keep(&self);
}

impl PartialOutcomes {
    /// The result of a request: all outcomes if there is one for each charge, the first failure if there is none at
    /// all, [`StoreError::Partial`] otherwise.
    ///
    /// # Errors
    /// The first failure, or [`StoreError::Partial`].
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

    /// The failure that came first.
    #[must_use]
    pub fn failure(&self) -> &StoreError {
        &self.failure
    }

    /// Keeps the recorded charges: the request is admitted.
    pub fn keep(&self) {
        if let Some(reservation) = &self.reservation {
            reservation.keep();
        }
    }
}

/// Compares the outcomes. Two reservations are never compared: each belongs to one request.
impl PartialEq for PartialOutcomes {
    fn eq(&self, other: &Self) -> bool {
        self.by_charge == other.by_charge
    }
}

impl Eq for PartialOutcomes {}

impl StoreError {
    /// The cause inside [`StoreError::Open`], [`StoreError::Partial`] and [`StoreError::Policy`]; any other error
    /// itself.
    #[must_use]
    pub fn root(&self) -> &Self {
        match self {
            Self::Open(cause) => cause.root(),
            Self::Partial(partial) => partial.failure.root(),
            Self::Policy(cause) => cause.root(),
            _ => self,
        }
    }

    /// The outcome of the charge at `index` in spite of this error.
    ///
    /// # Errors
    /// Why the charge has no answer.
    pub fn outcome(&self, index: usize) -> Result<Outcome, &Self> {
        match self {
            Self::Partial(partial) => partial.by_charge[index].as_ref().copied(),
            _ => Err(self),
        }
    }

    /// Whether the charge at `index` is over its limit; `unknown` if it has no answer.
    #[must_use]
    pub fn is_over(&self, index: usize, unknown: bool) -> bool {
        self.outcome(index).map_or(unknown, |outcome| outcome.verdict == Verdict::Over)
    }

    /// The cause for endpoints that everybody may read: without addresses, files, users or arguments of commands. For
    /// an error that the server answered, its code, such as `LOADING`.
    #[must_use]
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
    #[must_use]
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
