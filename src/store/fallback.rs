//! Layer: what is answered when the store below cannot, by each limit's own policy.

use crate::clock::Clock;
use crate::engine::{
    Basis, Charge, Charges, FailurePolicy, Outcome, Outcomes, Report, RetryAfter, Role, Store, StoreError,
    Verdict,
};

use super::memory::MemoryStore;

/// When a caller that was denied for want of a store may come back: nobody knows, so often enough to notice.
const DENIED_RETRY_US: u64 = 1_000_000;

/// Answers by [`FailurePolicy`] what the store below does not answer.
#[derive(Debug)]
pub struct Fallback<S, C> {
    below: S,
    /// Decides for limits whose policy is `local`. Shared by all workers of a process.
    local: std::sync::Arc<MemoryStore<C>>,
}

impl<S, C> Fallback<S, C> {
    /// Puts the layer over `below`.
    #[must_use]
    pub fn new(below: S, local: std::sync::Arc<MemoryStore<C>>) -> Self {
        Self { below, local }
    }
}

impl<S: Store, C: Clock> Store for Fallback<S, C> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match self.below.decide(charges).await {
            Ok(outcomes) => Ok(outcomes),
            Err(error) => self.by_policy(charges, error).await,
        }
    }
}

impl<S: Store, C: Clock> Fallback<S, C> {
    async fn by_policy(&self, charges: &Charges, error: StoreError) -> Result<Outcomes, StoreError> {
        if charges.each().iter().any(|charge| policy(charge) == FailurePolicy::Error) {
            return Err(StoreError::Policy(Box::new(error)));
        }
        let is_local = |charge: &Charge| policy(charge) == FailurePolicy::Local;
        let mut local = self.local.decide(&charges.filtered(is_local)).await?.each.into_iter();
        let each = charges.each().iter().map(|charge| match policy(charge) {
            FailurePolicy::Deny if !charge.cost.is_refund() => denied(charge),
            FailurePolicy::Local => {
                local.next().map_or_else(|| allowed(charge), |outcome| mark(outcome, charge))
            }
            FailurePolicy::Allow | FailurePolicy::Deny | FailurePolicy::Error => allowed(charge),
        });
        Ok(Outcomes { each: each.collect() })
    }
}

fn policy(charge: &Charge) -> FailurePolicy {
    match charge.role {
        Role::Free => charge.on_store_failure.of_a_bystander(),
        Role::Enforce | Role::Quota(_) => charge.on_store_failure,
    }
}

fn mark(outcome: Outcome, charge: &Charge) -> Outcome {
    Outcome { basis: Basis::Policy(charge.on_store_failure), ..outcome }
}

/// As an idle counter would answer.
fn allowed(charge: &Charge) -> Outcome {
    let report = Report {
        remaining: charge.kernel.max_cost().saturating_sub(charge.cost.needed()),
        retry_after: RetryAfter::Now,
        reset_after_us: 0,
        next_after_us: 0,
        delay_us: 0,
        until_reset_us: 0,
        over_by: 0,
    };
    mark(Outcome { verdict: Verdict::Fits, report, basis: Basis::Store }, charge)
}

fn denied(charge: &Charge) -> Outcome {
    let report = Report {
        remaining: 0,
        retry_after: RetryAfter::In(DENIED_RETRY_US),
        reset_after_us: DENIED_RETRY_US,
        next_after_us: DENIED_RETRY_US,
        delay_us: 0,
        until_reset_us: DENIED_RETRY_US,
        over_by: 0,
    };
    mark(Outcome { verdict: Verdict::Over, report, basis: Basis::Store }, charge)
}
