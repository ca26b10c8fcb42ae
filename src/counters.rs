//! The use case of operators: where the counters of a descriptor stand, and to make them as if never used.

use std::sync::Arc;

use crate::engine::{
    Cost, Decision, Descriptor, Enforcement, LimitResult, Period, Plan, PlanError, Report, Request, Reset,
    Store, StoreError,
};
use crate::limiter::Rulebook;

/// Looks at the counters of one store by the rules in force.
#[derive(Debug)]
pub struct CounterService<S> {
    /// The rules in force.
    pub rulebook: Arc<Rulebook>,
    /// The counters themselves, without what answers in their place.
    pub store: S,
}

/// One counter that a descriptor meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its key, without the store's prefix.
    pub key: String,
    /// The name of its limit, as in the metrics.
    pub limit: String,
    /// The name of its algorithm.
    pub algorithm: &'static str,
    /// Units per period.
    pub requests_per_unit: u32,
    /// The period.
    pub period: Period,
    /// Units that fit at once when nothing is used.
    pub max_cost: u32,
}

/// A counter and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterStatus {
    /// Which.
    pub counter: Counter,
    /// Its standing for one unit more.
    pub report: Report,
}

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// The request cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<S: Store + Reset> CounterService<S> {
    /// Every counter that the descriptors of the request meet. Changes nothing.
    ///
    /// # Errors
    /// [`CounterError`] where the request is out of range or the store gives no answer.
    pub async fn show(&self, request: &Request) -> Result<Vec<CounterStatus>, CounterError> {
        let plan = self.plan(request)?;
        let keys = keys(&plan);
        let outcomes = self.store.decide(&plan.charges).await?;
        let decision = Decision::merge(plan, outcomes, Enforcement::Shadow);
        let results = decision.limit_results().zip(keys);
        Ok(results.map(|(judged, key)| status(&judged, key)).collect())
    }

    /// Makes every counter that the descriptors meet as if never used; tells `audit` which before it does. Returns which
    /// had been used.
    ///
    /// # Errors
    /// [`CounterError`] where the request is out of range or the store gives no answer; some may be forgotten then.
    pub async fn reset(
        &self,
        request: &Request,
        audit: impl Fn(&str),
    ) -> Result<Vec<(String, bool)>, CounterError> {
        let plan = self.plan(request)?;
        let keys = keys(&plan);
        keys.iter().for_each(|key| audit(key));
        let forgotten = self.store.reset(&plan.charges).await?;
        Ok(keys.into_iter().zip(forgotten).collect())
    }

    /// Asks for nothing, whatever the request says.
    fn plan(&self, request: &Request) -> Result<Plan, PlanError> {
        let peek =
            |descriptor: &Descriptor| Descriptor { hits: Some(0), is_refund: false, ..descriptor.clone() };
        let descriptors = request.descriptors.iter().map(peek).collect();
        let plan = self.rulebook.rules().plan(&Request { descriptors, ..request.clone() })?;
        debug_assert!(plan.charges.as_slice().iter().all(|charge| charge.cost == Cost::PEEK));
        Ok(plan)
    }
}

fn keys(plan: &Plan) -> Vec<String> {
    plan.charges.as_slice().iter().map(|charge| plan.charges.key(charge).to_owned()).collect()
}

fn status(judged: &LimitResult<'_>, key: String) -> CounterStatus {
    let spec = &judged.limit.spec;
    CounterStatus {
        counter: Counter {
            key,
            limit: judged.limit.label.to_string(),
            algorithm: spec.algorithm.name(),
            requests_per_unit: spec.requests_per_unit,
            period: spec.period,
            max_cost: spec.max_cost(),
        },
        report: judged.outcome.report,
    }
}
