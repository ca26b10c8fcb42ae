//! What a store answers: an outcome for each charge.

use smallvec::SmallVec;

use super::algorithm::{CounterReading, Report, Verdict};
use super::limit::FailurePolicy;

/// Who made a decision: the store, a cache of its denials, or a failure policy.
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
    /// The counter.
    pub reading: CounterReading,
}

/// The decision about one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the cost fits.
    pub verdict: Verdict,
    /// The numbers of the limit after the decision.
    pub report: Report,
    /// Who made the decision.
    pub decided_by: DecidedBy,
}

/// The outcomes of all charges of a request, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// One per charge. `None`: the charge was skipped, because another charge denies the request for certain and this
    /// one would not be recorded. Nothing is known of its counter.
    pub by_charge: SmallVec<[Option<Outcome>; 2]>,
}

impl Outcomes {
    /// The outcomes of the charges that were decided.
    pub fn decided(&self) -> impl Iterator<Item = &Outcome> {
        self.by_charge.iter().flatten()
    }

    /// Whether the charge at `index` was decided to be over its limit.
    #[must_use]
    pub fn is_over(&self, index: usize) -> bool {
        self.by_charge[index].is_some_and(|outcome| outcome.verdict == Verdict::Over)
    }
}

/// The outcomes of a store that decides every charge.
impl FromIterator<Outcome> for Outcomes {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        Self { by_charge: outcomes.into_iter().map(Some).collect() }
    }
}
