//! The use case: one request in, one decision out. Awaits the store and nothing else.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use engine::{Decision, Enforcement, Outcomes, Plan, PlanError, Request, RuleSet, Store, StoreError};

use crate::telemetry::metrics::{LimitMeters, Metrics};

/// The current rules and their metrics, replaced together. Shared by every limiter of the process.
#[derive(Debug)]
pub struct Rulebook {
    current: ArcSwap<RulesInForce>,
    metrics: Metrics,
}

#[derive(Debug)]
struct RulesInForce {
    rules: Arc<RuleSet>,
    meters: LimitMeters,
    /// False until the first rules are loaded: then there is no rule that could say what to decide.
    are_loaded: bool,
}

impl Rulebook {
    /// Starts with these rules.
    #[must_use]
    pub fn new(rules: RuleSet, metrics: Metrics) -> Self {
        Self::with(rules, true, metrics)
    }

    /// Starts without rules: every request is an error until [`replace`](Self::replace).
    #[must_use]
    pub fn without_rules(metrics: Metrics) -> Self {
        Self::with(RuleSet::empty(), false, metrics)
    }

    fn with(rules: RuleSet, are_loaded: bool, metrics: Metrics) -> Self {
        let meters = metrics.limit_meters(&rules);
        let current = ArcSwap::from_pointee(RulesInForce { meters, rules: Arc::new(rules), are_loaded });
        Self { current, metrics }
    }

    /// Replaces the rules. Requests in progress are still decided by the old rules. Takes milliseconds for thousands of
    /// rules, so call it where no request waits, from one thread at a time.
    pub fn replace(&self, rules: RuleSet) -> OldRules {
        let meters = self.metrics.limit_meters(&rules);
        let rules = RulesInForce { meters, rules: Arc::new(rules), are_loaded: true };
        OldRules(self.current.swap(Arc::new(rules)))
    }

    /// The current rules.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.current.load().rules)
    }
}

/// Rules that are no longer in force.
#[derive(Debug)]
pub struct OldRules(Arc<RulesInForce>);

/// Decides requests by the current rules and the counters of one store.
#[derive(Debug)]
pub struct Limiter<S> {
    pub rulebook: Arc<Rulebook>,
    pub store: S,
    /// Whether denials take effect.
    pub enforcement: Enforcement,
}

/// Why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// The request is not valid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store gave no answer, and a limit has the failure policy `error`.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No rules were loaded yet.
    #[error("no rate limit configuration loaded")]
    NoRules,
}

impl OldRules {
    /// Waits until no request uses the rules, for a second at most, then frees them on this thread. The last request
    /// that uses thousands of rules would free them on the thread that decides, and others would wait for it.
    pub fn free_when_unused(self) {
        for _ in 0..100 {
            if Arc::strong_count(&self.0) == 1 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Counts a failed request when it is dropped before it is disarmed: after an error of the store, and when the call is
/// cancelled before the store answers.
struct FailureGuard<'r> {
    meters: &'r LimitMeters,
    plan: &'r Plan,
    is_armed: bool,
}

impl<'r> FailureGuard<'r> {
    fn new(meters: &'r LimitMeters, plan: &'r Plan) -> Self {
        Self { meters, plan, is_armed: true }
    }

    fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for FailureGuard<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.meters.record_failure(self.plan);
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Decides one request.
    ///
    /// # Errors
    /// [`DecideError`] when the request is not valid or the store gave no answer.
    pub async fn decide(&self, request: &Request) -> Result<Decision, DecideError> {
        let current = self.rulebook.current.load_full();
        let plan = current.rules.plan(request)?;
        if plan.charges.is_empty() {
            // Rules that are not loaded plan no charges.
            if !current.are_loaded {
                return Err(DecideError::NoRules);
            }
            self.count_unknown_domain(&current.rules, request);
            return Ok(Decision::merge(plan, Outcomes::default(), self.enforcement));
        }
        let failure = FailureGuard::new(&current.meters, &plan);
        let outcomes = self.store.decide(&plan.charges).await?;
        failure.disarm();
        let decision = Decision::merge(plan, outcomes, self.enforcement);
        current.meters.record(&decision);
        Ok(decision)
    }

    fn count_unknown_domain(&self, rules: &RuleSet, request: &Request) {
        if rules.domain(&request.domain).is_none() {
            self.rulebook.metrics.domain_not_found(request.descriptors.len());
        }
    }
}
