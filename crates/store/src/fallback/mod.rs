//! Layer: applies each limit's failure policy when the store below fails. If the store answers part of a request, the
//! policy answers only the rest. A request that only matches limits of 0 skips the store below: such a limit does not
//! have a counter.

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::algorithm::{Blocked, Kernel};
use engine::{
    Charge, Charges, Charging, DecidedBy, FailurePolicy, Outcome, Outcomes, Report, RetryAfter, Role, Store,
    StoreError, Verdict,
};
use smallvec::SmallVec;

use super::memory::MemoryStore;
use base::clock::Clock;

/// Retry hint of the policy `deny`. Nobody can predict when the store recovers; 1 s notices it soon.
const DENIED_RETRY_US: u64 = 1_000_000;

const DENIED: Report = Report {
    remaining: 0,
    retry_after: RetryAfter::In(DENIED_RETRY_US),
    reset_after_us: DENIED_RETRY_US,
    next_after_us: DENIED_RETRY_US,
    delay_us: 0,
    until_reset_us: DENIED_RETRY_US,
    over_by: 0,
};

/// Stands for a denial by policy.
const ALWAYS_OVER: Kernel = Kernel::Blocked(Blocked::new(DENIED_RETRY_US));

/// Applies [`FailurePolicy`] when the store below fails.
#[derive(Debug)]
pub struct Fallback<S, C> {
    below: S,
    local: Local<C>,
}

/// Counters of limits with the policy `local`.
#[derive(Debug)]
pub struct Local<C> {
    /// Shared by all workers of a process. Stores nothing for a limit of 0.
    pub store: Arc<MemoryStore<C>>,
    /// Processes that share each limit: each process enforces the limit divided by `instances`; 0 counts as 1. Shared
    /// by all workers, and may change.
    pub instances: Arc<AtomicU32>,
}

impl<S, C> Fallback<S, C> {
    pub fn new(below: S, local: Local<C>) -> Self {
        Self { below, local }
    }
}

impl<S: Store, C: Clock> Store for Fallback<S, C> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        if charges.need_no_store() {
            return self.local.store.decide(charges).await;
        }
        let error = match self.below.decide(charges).await {
            Ok(outcomes) => return Ok(outcomes),
            Err(error) => error,
        };
        // Boxed because this rare future would enlarge every decision's future.
        Box::pin(self.decide_by_policy(charges, error)).await
    }
}

#[derive(Clone, Copy)]
enum ChargeAnswer {
    /// By the store, or by a policy without a counter.
    Known(Outcome),
    /// By this process's memory.
    Local,
}

impl ChargeAnswer {
    fn is_over(self) -> bool {
        matches!(self, Self::Known(Outcome { verdict: Verdict::Over, .. }))
    }
}

impl<S: Store, C: Clock> Fallback<S, C> {
    /// Applies the policy to the charges without an answer. If the request is then admitted, the charges that the store
    /// recorded stay; otherwise the store undoes them when `error` is dropped.
    ///
    /// # Errors
    /// [`StoreError::Policy`] if the answers to the other charges do not decide the request, and an unanswered charge
    /// has the policy `error`. Its local charges stay recorded, because the caller can still let the request through.
    async fn decide_by_policy(&self, charges: &Charges, error: StoreError) -> Result<Outcomes, StoreError> {
        let answer = |(index, charge)| charge_answer(charge, error.outcome(index));
        let answers: SmallVec<[ChargeAnswer; 2]> = charges.values().enumerate().map(answer).collect();
        let mut outcomes = Outcomes::default();
        let mut local = Outcomes::default().by_charge.into_iter();
        if answers.iter().any(|answer| matches!(answer, ChargeAnswer::Local)) {
            let instances = self.local.instances.load(Ordering::Relaxed);
            let charges =
                local_charges(charges, &answers, NonZeroU32::new(instances).unwrap_or(NonZeroU32::MIN));
            local = self.local.store.decide(&charges).await?.by_charge.into_iter();
        }
        for (charge, &answer) in charges.values().zip(&answers) {
            // `local_charges` also has a charge for each denial; its outcome is not needed.
            let decided =
                if answer.is_over() || matches!(answer, ChargeAnswer::Local) { local.next() } else { None };
            outcomes.by_charge.extend(match answer {
                ChargeAnswer::Known(outcome) => Some(outcome),
                ChargeAnswer::Local => decided.map(|outcome| decided_locally(charge, outcome)),
            });
        }
        if charges.is_denied(|index| outcomes.is_over(index)) {
            return Ok(outcomes);
        }
        if charges.is_denied(|index| outcomes.is_over(index) || failure(charges, index, &error).is_some())
            && let Some(cause) = (0..charges.len()).find_map(|index| failure(charges, index, &error))
        {
            return Err(StoreError::Policy(Box::new(cause.clone())));
        }
        if let StoreError::Partial(partial) = &error {
            partial.keep();
        }
        Ok(outcomes)
    }
}

/// Returns the outcome that this process's memory decided for the policy `local`. A limit of 0 does not have a counter,
/// so its outcome does not depend on a policy.
fn decided_locally(charge: &Charge, outcome: Outcome) -> Outcome {
    if charge.kernel.has_counter() {
        Outcome { decided_by: DecidedBy::Policy(FailurePolicy::Local), ..outcome }
    } else {
        outcome
    }
}

/// Returns how to answer a charge, given the store's answer to it.
fn charge_answer(charge: &Charge, by_store: Result<Outcome, &StoreError>) -> ChargeAnswer {
    if let Ok(outcome) = by_store {
        return ChargeAnswer::Known(outcome);
    }
    // A charge with `error` counts as admitted until the answers to the other charges are known.
    let policy = charge.on_store_failure.allow_for_error();
    if charge.role == Role::Settle {
        return ChargeAnswer::Known(lost_settle(charge, policy));
    }
    if !charge.kernel.has_counter() || policy == FailurePolicy::Local {
        return ChargeAnswer::Local;
    }
    ChargeAnswer::Known(policy_outcome(charge, policy))
}

/// Returns the outcome of a settle that no store recorded. It denies nothing under any policy, and the `local` counters
/// do not have the estimate.
fn lost_settle(charge: &Charge, policy: FailurePolicy) -> Outcome {
    let report = Report::unused(charge.kernel.max_cost());
    Outcome { verdict: Verdict::Fits, report, decided_by: DecidedBy::Policy(policy) }
}

/// Returns why the charge at `index` is unanswered, if its policy is `error`.
fn failure<'e>(charges: &Charges, index: usize, error: &'e StoreError) -> Option<&'e StoreError> {
    let charge = charges.charge(index);
    let can_fail = charge.on_store_failure == FailurePolicy::Error && charge.kernel.has_counter();
    if can_fail { error.outcome(index).err() } else { None }
}

/// Builds the request for this process's memory: the local charges, and for each charge that is over already one that
/// never fits. Such a denial keeps the local charges from being recorded.
fn local_charges(charges: &Charges, answers: &[ChargeAnswer], instances: NonZeroU32) -> Charges {
    charges.filter_map(|index, charge| match answers[index] {
        ChargeAnswer::Local => Some(Charge { kernel: charge.kernel.share_of(instances), ..charge.clone() }),
        known if known.is_over() => {
            Some(Charge { kernel: ALWAYS_OVER, charging: Charging::Prepaid, ..charge.clone() })
        }
        ChargeAnswer::Known(_) => None,
    })
}

/// Returns the outcome of a policy without a counter. A cost that can never fit is denied under every policy.
fn policy_outcome(charge: &Charge, policy: FailurePolicy) -> Outcome {
    let decided_by = DecidedBy::Policy(policy);
    if charge.never_fits() {
        let report = Report { retry_after: RetryAfter::Never, ..DENIED };
        return Outcome { verdict: Verdict::Over, report, decided_by };
    }
    if policy == FailurePolicy::Deny && !charge.cost.is_refund() {
        return Outcome { verdict: Verdict::Over, report: DENIED, decided_by };
    }
    // Reports an empty counter.
    let report = Report::unused(charge.kernel.max_cost().saturating_sub(charge.cost.taken()));
    Outcome { verdict: Verdict::Fits, report, decided_by }
}
