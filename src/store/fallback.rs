//! Layer: what is answered when the store below cannot, by each limit's own policy.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::clock::Clock;
use crate::engine::algorithm::{Blocked, Kernel};
use crate::engine::{
    Charge, Charges, Charging, DecidedBy, FailurePolicy, Outcome, Outcomes, Report, RetryAfter, Role, Store,
    StoreError, Verdict,
};

use super::memory::MemoryStore;

/// When a caller that was denied for want of a store may come back: nobody knows, so often enough to notice.
const DENIED_RETRY_US: u64 = 1_000_000;

/// Answers by [`FailurePolicy`] what the store below does not answer.
#[derive(Debug)]
pub struct Fallback<S, C> {
    below: S,
    local: Local<C>,
}

/// What decides for limits whose policy is `local`.
#[derive(Debug)]
pub struct Local<C> {
    /// Shared by all workers of a process.
    pub store: Arc<MemoryStore<C>>,
    /// So many processes share each limit: it counts to this part of itself.
    pub share: NonZeroU32,
}

impl<S, C> Fallback<S, C> {
    /// Puts the layer over `below`.
    #[must_use]
    pub fn new(below: S, local: Local<C>) -> Self {
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
        if charges.as_slice().iter().any(|charge| policy(charge) == FailurePolicy::Error) {
            return Err(StoreError::Policy(Box::new(error)));
        }
        let mut local =
            self.local.store.decide(&left_to_memory(charges, self.local.share)).await?.by_charge.into_iter();
        let each = charges.as_slice().iter().map(|charge| match without_counter(charge) {
            // Stands in the memory's request to hold it back; its answer is known.
            Some(outcome) if outcome.verdict == Verdict::Over => {
                local.next();
                outcome
            }
            Some(outcome) => outcome,
            None => local
                .next()
                .map_or_else(|| allowed(charge), |outcome| Outcome { basis: by_policy(charge), ..outcome }),
        });
        Ok(Outcomes { by_charge: each.collect() })
    }
}

/// What the process's own memory is to decide: the local charges, held back by those that are denied without a counter.
fn left_to_memory(charges: &Charges, share: NonZeroU32) -> Charges {
    let is_over =
        |charge: &Charge| without_counter(charge).is_none_or(|outcome| outcome.verdict == Verdict::Over);
    let mut left = charges.filtered(is_over);
    for charge in left.as_mut_slice() {
        if without_counter(charge).is_some() {
            charge.kernel = Kernel::Blocked(Blocked);
            charge.charging = Charging::Prepaid;
        } else {
            charge.kernel = charge.kernel.share_of(share);
        }
    }
    left
}

/// The answer for a charge that needs no counter (what can never fit is refused by every policy); `None` where the process's memory is to decide.
fn without_counter(charge: &Charge) -> Option<Outcome> {
    match policy(charge) {
        FailurePolicy::Local => None,
        _ if charge.cost.needed() > charge.kernel.max_cost() => Some(never(charge)),
        FailurePolicy::Deny if !charge.cost.is_refund() => Some(denied(charge)),
        FailurePolicy::Allow | FailurePolicy::Deny | FailurePolicy::Error => Some(allowed(charge)),
    }
}

fn policy(charge: &Charge) -> FailurePolicy {
    match charge.role {
        Role::NonBinding => charge.on_store_failure.for_non_binding(),
        Role::Enforce | Role::Quota(_) => charge.on_store_failure,
    }
}

fn by_policy(charge: &Charge) -> DecidedBy {
    DecidedBy::Policy(policy(charge))
}

/// As an idle counter would answer.
fn allowed(charge: &Charge) -> Outcome {
    let report = Report::idle(charge.kernel.max_cost().saturating_sub(charge.cost.taken()));
    Outcome { verdict: Verdict::Fits, report, basis: by_policy(charge) }
}

/// What can never fit needs no counter to be refused.
fn never(charge: &Charge) -> Outcome {
    let denied = denied(charge);
    Outcome { report: Report { retry_after: RetryAfter::Never, ..denied.report }, ..denied }
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
    Outcome { verdict: Verdict::Over, report, basis: by_policy(charge) }
}

#[cfg(test)]
mod tests;
