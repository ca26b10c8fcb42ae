//! Shows and resets a descriptor's counters, for operators. `change` sets them.

mod change;

use std::sync::Arc;

use base::clock::Clock;
use engine::algorithm::Kernel;
use engine::{
    Charge, ChargedLimit, Charges, Charging, Cost, Decision, Descriptor, Enforcement, FailurePolicy, Limit,
    LimitResult, Plan, PlanError, Report, Request, Reset, Role, Store,
};
use rules::derivation_text;

use super::NoDecision;
use super::limiter::Rulebook;
pub use change::{Change, ChangeError, ChangedCounter, MOST_UNITS};

/// Finds the counters of one store by the current rules.
#[derive(Debug)]
pub struct CounterService<S> {
    pub rulebook: Arc<Rulebook>,
    /// The store that holds the counters, without deny cache and failure policies.
    pub store: S,
    /// For planning requests. The store decides by its own clock.
    pub clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug)]
pub struct CounterStatus {
    /// Without the store's prefix.
    pub key: String,
    pub limit: Limit,
    /// Maximum cost ever admitted, units.
    pub max_cost: u64,
    /// From a peek.
    pub report: Report,
    /// Where the limit comes from, if exceptions or a tier have changed it.
    pub exception: Option<String>,
}

impl<S: Store + Reset> CounterService<S> {
    /// Shows every counter of the request's descriptors. Changes nothing.
    ///
    /// # Errors
    /// [`NoDecision`] if the request is invalid or the store does not answer.
    pub async fn show(&self, request: &Request) -> Result<Vec<CounterStatus>, NoDecision> {
        let plan = self.plan(request)?;
        let counter = |(key, charge): (&str, &Charge)| (key.to_owned(), charge.kernel.max_cost());
        let counters: Vec<_> = plan.charges.iter().map(counter).collect();
        let outcomes = self.store.decide(&plan.charges).await?;
        let decision = Decision::merge(plan, outcomes, Enforcement::Shadow);
        // One result per key: peeks on one counter are one charge.
        let results = decision.charges().zip(counters);
        let status = |((charged, result), (key, max_cost)): ((ChargedLimit<'_>, LimitResult<'_>), _)| {
            let mut derivations = decision.derivations().iter();
            let derivation = derivations.find(|derivation| derivation.charge == Some(charged.index));
            CounterStatus {
                key,
                max_cost,
                limit: result.limit.clone(),
                report: result.outcome.report,
                exception: derivation.map(derivation_text),
            }
        };
        Ok(results.map(status).collect())
    }

    /// Removes every counter of the request's descriptors, or those of the limits with this name. Calls `audit` with
    /// each key first. Returns each key, with `true` if its counter existed.
    ///
    /// # Errors
    /// [`ChangeError`] if the request is invalid or has no such counter, or the store does not answer. Some counters may
    /// then have been removed.
    pub async fn reset(
        &self,
        request: &Request,
        limit_name: Option<&str>,
        audit: impl Fn(&str),
    ) -> Result<Vec<(String, bool)>, ChangeError> {
        let (charges, _) = self.find(request, limit_name)?;
        charges.keys().for_each(audit);
        let existed = self.store.reset(&charges).await.map_err(NoDecision::from)?;
        Ok(charges.keys().map(str::to_owned).zip(existed).collect())
    }

    /// Shows one counter by its key. Changes nothing.
    ///
    /// # Errors
    /// [`NoDecision`] if the store does not answer.
    pub async fn show_counter(&self, key: &str, kernel: Kernel) -> Result<Report, NoDecision> {
        let outcomes = self.store.decide(&peek_at(key, kernel)).await?;
        Ok(outcomes.by_charge[0].report)
    }

    /// Removes one counter by its key. Returns `true` if it existed.
    ///
    /// # Errors
    /// [`NoDecision`] if the store does not answer. The counter may have been removed.
    pub async fn reset_counter(&self, key: &str, kernel: Kernel) -> Result<bool, NoDecision> {
        let existed = self.store.reset(&peek_at(key, kernel)).await?;
        Ok(existed.contains(&true))
    }

    /// Plans the request with every cost replaced by a peek.
    fn plan(&self, request: &Request) -> Result<Plan, PlanError> {
        let peek = |descriptor: &Descriptor| Descriptor {
            hits: Some(0),
            is_refund: false,
            attached: None,
            ..descriptor.clone()
        };
        let descriptors = request.descriptors.iter().map(peek).collect();
        let mut plan = Plan::new(
            &self.rulebook.rules(),
            &Request { descriptors, ..request.clone() },
            self.clock.now_us(),
        )?;
        // Reports a hit, whatever a caller's check asks for. Peeks on one counter are one charge.
        plan.charges.values_mut().for_each(|charge| charge.cost = Cost::PEEK);
        Ok(plan)
    }
}

fn peek_at(key: &str, kernel: Kernel) -> Charges {
    let mut charges = Charges::default();
    let charge = Charge {
        kernel,
        cost: Cost::PEEK,
        charging: Charging::Prepaid,
        role: Role::Shadow,
        on_store_failure: FailurePolicy::Error,
    };
    charges.push(charge, |text| text.push_str(key));
    charges
}
