//! Applies exceptions and tiers to one descriptor's limits: only for domains with exceptions, and rules with tiers.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::Limit;
use crate::limit::period::{Period, Unit};
use crate::limit::spec::LimitSpec;
use crate::request::Descriptor;
use crate::rules::exceptions::derivation::{Amount, Derivation};
use crate::rules::exceptions::effect::Changed;
use crate::rules::exceptions::look_up::{DomainLookUp, MatchedRows};
use crate::rules::rule_set::{DomainRules, Rule, RuleSet, Walk};
use crate::rules::secret::HiddenValues;

/// The label if an exception denies a descriptor without a rule.
const BLOCKED: &str = "exception";

/// Where and when the limits change.
pub(super) struct Changing<'m> {
    pub(super) rules: &'m RuleSet,
    pub(super) domain: &'m DomainRules,
    pub(super) hidden: &'m HiddenValues,
    pub(super) exceptions: Option<DomainLookUp<'m>>,
    pub(super) descriptor: &'m Descriptor,
    /// Of the descriptor, from 0.
    pub(super) index: usize,
    pub(super) now_us: u64,
}

impl Changing<'_> {
    /// Returns the limits that replace `limits`: the limits of `rule` or, without a rule, perhaps an override. `None`
    /// if they stay. Appends the changes to `derivations`.
    pub(super) fn change(
        &self,
        rule: Option<&Arc<Rule>>,
        limits: &[Arc<Limit>],
        walk: &Walk<'_>,
        derivations: &mut Vec<Derivation>,
    ) -> Option<SmallVec<[Arc<Limit>; 2]>> {
        let entries = &self.descriptor.entries;
        let hash_of = |entry| self.hidden.get(self.index, entry);
        let rows = self.exceptions.map(|exceptions| exceptions.rows(entries, hash_of, self.now_us));
        let mut rows = rows.unwrap_or_default();
        if self.descriptor.attached.is_some() {
            // A settle denies nothing, and a renewal belongs to an admitted request.
            rows.leave_out_blocks();
        }
        let entry_tier = self.entry_tier(walk);
        if rows.is_empty() && entry_tier.is_none() {
            return None;
        }
        let mut changes = Changes { index: self.index, limits: SmallVec::new(), derivations };
        match rule {
            Some(rule) => {
                for limit in &rule.limits {
                    changes
                        .add(Amount::for_limit(limit), rows.change(limit, rule.path_in_domain(), entry_tier));
                }
            }
            None => self.block(limits.first(), &rows, &mut changes),
        }
        Some(changes.limits).filter(|limits| !limits.is_empty())
    }

    /// The tier named by an entry of the descriptor; if there are several, by the deepest.
    fn entry_tier(&self, walk: &Walk<'_>) -> Option<&str> {
        let deepest = walk.steps.iter().rposition(|step| step.node().is_tier)?;
        Some(&self.descriptor.entries.get(deepest)?.value)
    }

    /// A blocking exception also denies descriptors with an override, and descriptors without a rule.
    fn block(&self, override_limit: Option<&Arc<Limit>>, rows: &MatchedRows<'_>, changes: &mut Changes<'_>) {
        let (from, limit, rule) = match override_limit {
            Some(own) => {
                let walk = self.domain.walk(&self.descriptor.entries, &mut String::new());
                (Amount::for_limit(own), Arc::clone(own), walk.end.and_then(|node| node.rule.as_deref()))
            }
            None => {
                let spec = LimitSpec::new(self.rules.defaults().algorithm, 0, Period::one(Unit::Second));
                let Ok(limit) = Limit::new(spec) else { return };
                let limit = limit.placed(self.rules.compiled.next_limit_id(), BLOCKED);
                (Amount::NoLimit, Arc::new(limit), None)
            }
        };
        let of_rule = rule.map(|rule| (rule.path_in_domain(), rule.limits.as_slice()));
        if let Some(blocked) = rows.block(&limit, of_rule) {
            changes.add(from, blocked);
        }
    }
}

struct Changes<'p> {
    index: usize,
    limits: SmallVec<[Arc<Limit>; 2]>,
    derivations: &'p mut Vec<Derivation>,
}

impl Changes<'_> {
    fn add(&mut self, from: Amount, changed: Changed) {
        let Changed { limit, steps } = changed;
        if !steps.is_empty() {
            let label = Arc::clone(&limit.label);
            let (descriptor, id) = (self.index, limit.id);
            self.derivations.push(Derivation { descriptor, limit: id, label, charge: None, from, steps });
        }
        self.limits.push(limit);
    }
}
