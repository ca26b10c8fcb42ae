//! Layer: answers by each limit's failure policy when the store below fails.

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::Arc;

use super::memory::MemoryStore;
use crate::clock::Clock;
use crate::engine::algorithm::{Blocked, Kernel};
use crate::engine::{
    Charge, Charges, Charging, DecidedBy, FailurePolicy, Outcome, Outcomes, Report, RetryAfter, Role, Store,
    StoreError, Verdict,
};

/// The retry hint of the policy `deny`. When the store recovers is unknown; 1 s is short enough to notice it soon.
const DENIED_RETRY_US: u64 = 1_000_000;

/// Answers by [`FailurePolicy`] when the store below fails.
#[derive(Debug)]
pub struct Fallback<S, C> {
    below: S,
    local: Local<C>,
}

/// The counters of limits with the policy `local`.
#[derive(Debug)]
pub struct Local<C> {
    /// Shared by all workers of a process.
    pub store: Arc<MemoryStore<C>>,
    /// The number of processes that share each limit: each process enforces the limit divided by this number.
    pub instances: NonZeroU32,
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
            Err(error) => self.decide_by_policy(charges, error).await,
        }
    }
}

impl<S: Store, C: Clock> Fallback<S, C> {
    async fn decide_by_policy(&self, charges: &Charges, error: StoreError) -> Result<Outcomes, StoreError> {
        if charges.values().any(|charge| policy(charge) == FailurePolicy::Error) {
            return Err(StoreError::Policy(Box::new(error)));
        }
        let local = self.local.store.decide(&local_charges(charges, self.local.instances)).await?;
        let mut local = local.by_charge.into_iter().flatten();
        let outcome = |charge| match policy_outcome(charge) {
            // `local_charges` has a charge for this denial; its outcome is not needed.
            Some(outcome) if outcome.verdict == Verdict::Over => {
                local.next();
                outcome
            }
            Some(outcome) => outcome,
            // `local_charges` has a charge for every outcome that is missing here, so `allowed` is never used.
            None => local.next().map_or_else(
                || allowed(charge),
                |outcome| Outcome { decided_by: decided_by_policy(charge), ..outcome },
            ),
        };
        Ok(charges.values().map(outcome).collect())
    }
}

/// The request to the process's own memory: the charges with the policy `local`, and for each charge that a policy
/// denies a charge that is always over, so that the denial keeps the local ones from being recorded.
fn local_charges(charges: &Charges, instances: NonZeroU32) -> Charges {
    let is_denied =
        |charge: &Charge| policy_outcome(charge).is_some_and(|outcome| outcome.verdict == Verdict::Over);
    let is_local = |charge: &Charge| policy_outcome(charge).is_none();
    let mut local = charges.filtered(|_, charge| is_local(charge) || is_denied(charge));
    for charge in local.values_mut() {
        if is_local(charge) {
            charge.kernel = charge.kernel.share_of(instances);
        } else {
            charge.kernel = Kernel::Blocked(Blocked);
            charge.charging = Charging::Prepaid;
        }
    }
    local
}

/// The outcome of a charge whose policy needs no counter; `None` for `local`. A cost that can never fit is denied by
/// every policy.
fn policy_outcome(charge: &Charge) -> Option<Outcome> {
    match policy(charge) {
        FailurePolicy::Local => None,
        _ if charge.cost.needed() > charge.kernel.max_cost() => Some(denied_for_ever(charge)),
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

fn decided_by_policy(charge: &Charge) -> DecidedBy {
    DecidedBy::Policy(policy(charge))
}

/// The outcome that an unused counter would give.
fn allowed(charge: &Charge) -> Outcome {
    let report = Report::unused(charge.kernel.max_cost().saturating_sub(charge.cost.taken()));
    Outcome { verdict: Verdict::Fits, report, decided_by: decided_by_policy(charge) }
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
    Outcome { verdict: Verdict::Over, report, decided_by: decided_by_policy(charge) }
}

fn denied_for_ever(charge: &Charge) -> Outcome {
    let denied = denied(charge);
    Outcome { report: Report { retry_after: RetryAfter::Never, ..denied.report }, ..denied }
}
