//! Shows and resets a descriptor's counters, for operators. `change` sets them.

mod change;

use std::sync::Arc;

use base::clock::Clock;
use engine::algorithm::Kernel;
use engine::{
    Caller, Charge, Charges, Charging, Cost, Derivation, Descriptor, Explanation, FailurePolicy, Limit,
    LimitUse, Outcome, Outcomes, PlanError, Request, Reset, Role, RuleSet, Store,
};
use rules::derivation_text;

use super::NoDecision;
use super::limiter::Rulebook;
use super::usage::LimitUsage;
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

/// A descriptor's limit, and how it applies.
#[derive(Clone, Debug)]
pub struct AppliedLimit {
    /// Its rule's path; `None` for a limit of the request, and for a block without a rule.
    pub rule: Option<Arc<str>>,
    /// After exceptions and tiers.
    pub limit: Arc<Limit>,
    pub derivation: Option<Derivation>,
    pub is_quota: bool,
    /// The index of its peek; `None` if nothing is counted.
    pub peek: Option<usize>,
}

/// The limits of descriptors, and a peek on each of their counters.
#[derive(Debug, Default)]
pub struct Peeks {
    pub charges: Charges,
    /// One per descriptor.
    pub descriptors: Vec<Vec<AppliedLimit>>,
}

/// A counter for operators.
#[derive(Debug)]
pub struct CounterStatus {
    /// Without the store's prefix.
    pub key: String,
    pub usage: LimitUsage,
    /// Where the limit comes from, if exceptions or a tier changed it.
    pub exception: Option<String>,
    /// When its open slots were last taken or renewed, and when they end. Microseconds since the epoch.
    pub slots: Vec<(u64, u64)>,
}

impl Peeks {
    /// Finds a descriptor's limits as if it came alone, and with a hit of its own: no other descriptor replaces
    /// one of them, and neither does a check, a refund or a settle leave one out.
    pub(super) fn add(
        &mut self,
        rules: &RuleSet,
        (domain, descriptor): (&str, Descriptor),
        now_us: u64,
    ) -> Result<Vec<AppliedLimit>, PlanError> {
        let descriptor = Descriptor { hits: Some(0), is_refund: false, attached: None, ..descriptor };
        let request = Request {
            domain: domain.to_owned(),
            hits_addend: 0,
            descriptors: vec![descriptor],
            caller: Caller::default(),
        };
        let Explanation { plan, descriptors, .. } = Explanation::new(rules, &request, now_us)?;
        let Some(described) = descriptors.into_iter().next() else { return Ok(Vec::new()) };
        let rule = described.rule.filter(|_| !described.is_override);
        let is_quota = rules.defaults().quota_mode || rule.is_some_and(|rule| rule.quota);
        let applied = described.limits.into_iter().filter(|explained| explained.planned.applies());
        let applied = applied.map(|explained| AppliedLimit {
            rule: rule.map(|rule| Arc::clone(&rule.path)),
            limit: explained.limit,
            derivation: explained.derivation,
            is_quota,
            peek: match explained.planned {
                LimitUse::Charged(index) => {
                    let (key, charge) = plan.charges.get(index);
                    Some(self.peek(key, charge.kernel))
                }
                LimitUse::Unlimited | LimitUse::Replaced(_) | LimitUse::LeftOut => None,
            },
        });
        Ok(applied.collect())
    }

    /// Adds a peek on a counter, once. Returns its index.
    pub(super) fn peek(&mut self, key: &str, kernel: Kernel) -> usize {
        let is_known = |(other, charge): (&str, &Charge)| other == key && charge.kernel == kernel;
        if let Some(index) = self.charges.iter().position(is_known) {
            return index;
        }
        self.charges.push_apart(peek_with(kernel), key);
        self.charges.len() - 1
    }

    /// The kernel and the counter; `None` if nothing is counted.
    pub(super) fn read<'o>(
        &self,
        applied: &AppliedLimit,
        outcomes: &'o Outcomes,
    ) -> Option<(Kernel, &'o Outcome)> {
        let index = applied.peek?;
        Some((self.charges.charge(index).kernel, &outcomes.by_charge[index]))
    }
}

impl<S: Store> CounterService<S> {
    /// Returns all limits of each descriptor, with their usage. Changes nothing.
    ///
    /// # Errors
    /// [`NoDecision`] if there are no rules yet, a limit of the request is out of range, or the store does not answer.
    pub async fn usage(&self, request: &Request) -> Result<Vec<Vec<LimitUsage>>, NoDecision> {
        let peeks = self.peeks(request)?;
        let outcomes = self.store.decide(&peeks.charges).await?;
        let usage = |applied: &AppliedLimit| LimitUsage::new(applied, peeks.read(applied, &outcomes));
        Ok(peeks.descriptors.iter().map(|limits| limits.iter().map(usage).collect()).collect())
    }

    fn peeks(&self, request: &Request) -> Result<Peeks, NoDecision> {
        if !self.rulebook.has_rules() {
            return Err(NoDecision::NoRules);
        }
        let (rules, now_us) = (self.rulebook.rules(), self.clock.now_us());
        let mut peeks = Peeks::default();
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let applied = peeks.add(&rules, (&request.domain, descriptor.clone()), now_us);
            let applied = applied.map_err(|PlanError::Override { cause, .. }| {
                NoDecision::from(PlanError::Override { index, cause })
            })?;
            peeks.descriptors.push(applied);
        }
        Ok(peeks)
    }
}

impl<S: Store + Reset> CounterService<S> {
    /// Shows every counter of the request's descriptors. Changes nothing.
    ///
    /// # Errors
    /// As for [`usage`](Self::usage).
    pub async fn show(&self, request: &Request) -> Result<Vec<CounterStatus>, NoDecision> {
        let peeks = self.peeks(request)?;
        let outcomes = self.store.decide(&peeks.charges).await?;
        let mut counters = Vec::new();
        for applied in peeks.descriptors.iter().flatten() {
            let Some((kernel, outcome)) = peeks.read(applied, &outcomes) else { continue };
            let key = peeks.charges.get(applied.peek.unwrap_or_default()).0.to_owned();
            let mut slots = Vec::new();
            if let (Kernel::Slots(kernel), Some(read)) = (kernel, outcome.decided_by.snapshot()) {
                let ends = self.store.slot_ends(&key, read.now_us).await?;
                slots.extend(ends.into_iter().map(|end_us| (end_us.saturating_sub(kernel.hold_us), end_us)));
            }
            counters.push(CounterStatus {
                key,
                usage: LimitUsage::new(applied, Some((kernel, outcome))),
                exception: applied.derivation.as_ref().map(derivation_text),
                slots,
            });
        }
        Ok(counters)
    }

    /// Removes every counter of the request's descriptors, or of the limits with this name. Calls `audit` with
    /// each key first. Returns each key, with `true` if its counter existed.
    ///
    /// # Errors
    /// [`ChangeError`] if the request is invalid or matches no such counter, or the store does not answer.
    /// Some counters may then have been removed.
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
    pub async fn show_counter(&self, key: &str, kernel: Kernel) -> Result<Outcome, NoDecision> {
        let outcomes = self.store.decide(&peek_at(key, kernel)).await?;
        Ok(outcomes.by_charge[0])
    }

    /// Removes one counter by its key. Returns `true` if it existed.
    ///
    /// # Errors
    /// [`NoDecision`] if the store does not answer. The counter may have been removed.
    pub async fn reset_counter(&self, key: &str, kernel: Kernel) -> Result<bool, NoDecision> {
        let existed = self.store.reset(&peek_at(key, kernel)).await?;
        Ok(existed.contains(&true))
    }
}

fn peek_with(kernel: Kernel) -> Charge {
    Charge {
        kernel,
        cost: Cost::PEEK,
        charging: Charging::Prepaid,
        role: Role::Shadow,
        on_store_failure: FailurePolicy::Error,
    }
}

fn peek_at(key: &str, kernel: Kernel) -> Charges {
    let mut charges = Charges::default();
    charges.push_apart(peek_with(kernel), key);
    charges
}
