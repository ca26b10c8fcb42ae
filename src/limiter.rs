//! The use case: one request in, one decision out. The store is the only thing it waits for.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::engine::{Decision, Enforcement, Outcomes, Plan, PlanError, Request, RuleSet, Store, StoreError};
use crate::telemetry::metrics::{LimitMeters, Metrics};

/// The rules in force with their counters, swapped whole. Shared by every limiter of the process.
#[derive(Debug)]
pub struct Rulebook {
    live: ArcSwap<Live>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Live {
    rules: Arc<RuleSet>,
    meters: LimitMeters,
}

impl Rulebook {
    /// Puts the first rules in force.
    #[must_use]
    pub fn new(rules: RuleSet, metrics: Metrics) -> Self {
        let live =
            ArcSwap::from_pointee(Live { meters: metrics.limit_meters(&rules), rules: Arc::new(rules) });
        Self { live, metrics }
    }

    /// Puts other rules in force. Requests that are under way finish by the old ones.
    pub fn replace(&self, rules: RuleSet) {
        let meters = self.metrics.limit_meters(&rules);
        self.live.store(Arc::new(Live { meters, rules: Arc::new(rules) }));
    }

    /// The rules in force now.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.live.load().rules)
    }
}

/// Decides requests by the rules in force and the counters of one store.
#[derive(Debug)]
pub struct Limiter<S> {
    /// The rules in force.
    pub rulebook: Arc<Rulebook>,
    /// The counters.
    pub store: S,
    /// Whether answers bind.
    pub enforcement: Enforcement,
}

/// Why a request got no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// The request cannot be planned: the caller's mistake.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store gave no answer and a limit's failure policy is `error`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A request whose caller has gone before it was decided counts as one that failed.
struct Unanswered<'p> {
    meters: &'p LimitMeters,
    plan: &'p Plan,
    is_answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.meters.record_failure(self.plan);
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Decides one request.
    ///
    /// # Errors
    /// [`DecideError`] when the request is out of range or the store gave no answer.
    pub async fn decide(&self, request: &Request) -> Result<Decision, DecideError> {
        let live = self.rulebook.live.load_full();
        let plan = live.rules.plan(request)?;
        if plan.charges.is_empty() {
            self.note_unknown_domain(&live.rules, request);
            return Ok(Decision::merge(plan, Outcomes::default(), self.enforcement));
        }
        let mut unanswered = Unanswered { meters: &live.meters, plan: &plan, is_answered: false };
        let answer = self.store.decide(&plan.charges).await;
        unanswered.is_answered = true;
        drop(unanswered);
        match answer {
            Ok(outcomes) => {
                let decision = Decision::merge(plan, outcomes, self.enforcement);
                live.meters.record(&decision);
                Ok(decision)
            }
            Err(error) => {
                live.meters.record_failure(&plan);
                Err(error.into())
            }
        }
    }

    fn note_unknown_domain(&self, rules: &RuleSet, request: &Request) {
        if rules.domain(&request.domain).is_none() {
            self.rulebook.metrics.domain_not_found();
        }
    }
}
