//! Finds the limits of each descriptor: its override or those of the matching rule, changed by exceptions and tiers.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::Limit;
use crate::limit::period::{Period, Unit};
use crate::limit::spec::{LimitError, LimitSpec};
use crate::request::{Descriptor, LimitOverride, Request};
use crate::rules::exceptions::derivation::{Amount, Derivation};
use crate::rules::exceptions::effect::Changed;
use crate::rules::exceptions::look_up::{DomainLookUp, MatchedRows};
use crate::rules::rule_set::{DomainRules, Rule, RuleSet, Walk};
use crate::rules::secret::HiddenValues;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An override is out of range.
    #[error("descriptor {index}: {cause}")]
    Override {
        /// Of the descriptor, from 0.
        index: usize,
        cause: LimitError,
    },
}

/// Matches a `key_value` string of up to this many bytes without a second allocation. Most are shorter.
const MATCH_TEXT_CAPACITY: usize = 64;

pub(crate) struct Match<'r> {
    pub(crate) rule: Option<&'r Arc<Rule>>,
    limits: Limits<'r>,
    pub(crate) walk: Walk<'r>,
}

enum Limits<'r> {
    OfRule(&'r [Arc<Limit>]),
    /// Instead of the rule's limits: an override, or limits that exceptions or tiers changed.
    Own(SmallVec<[Arc<Limit>; 2]>),
}

impl Match<'_> {
    pub(crate) fn limits(&self) -> &[Arc<Limit>] {
        match &self.limits {
            Limits::OfRule(limits) => limits,
            Limits::Own(limits) => limits,
        }
    }

    pub(crate) fn is_quota(&self) -> bool {
        self.rule.is_some_and(|rule| rule.quota)
    }
}

/// In descriptor order.
pub(crate) type Matches<'r> = SmallVec<[Match<'r>; 2]>;

/// When a request is planned, and the id for its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedAt {
    /// Microseconds since the epoch.
    pub now_us: u64,
    /// Identifies the request's slots: random and below 2^53. Matters only with concurrency.
    pub slot_id: u64,
}

/// For a plan without slots, or without a decision.
impl From<u64> for PlannedAt {
    fn from(now_us: u64) -> Self {
        Self { now_us, slot_id: 0 }
    }
}

/// A request to plan, with the rules of its domain.
#[derive(Clone, Copy)]
pub(crate) struct Planning<'r, 'q> {
    pub(crate) rules: &'r RuleSet,
    pub(crate) domain: &'r DomainRules,
    pub(crate) request: &'q Request,
    pub(crate) at: PlannedAt,
}

pub(crate) struct Matching<'r, 'q> {
    pub(crate) planning: &'q Planning<'r, 'q>,
    pub(crate) hidden: &'q HiddenValues,
}

impl<'r> Matching<'r, '_> {
    /// Returns the limits of each descriptor. Appends changes by exceptions and tiers to `derivations`.
    ///
    /// # Errors
    /// [`PlanError`] if an override is out of range.
    pub(crate) fn matches(&self, derivations: &mut Vec<Derivation>) -> Result<Matches<'r>, PlanError> {
        let Planning { rules, domain, request, .. } = *self.planning;
        let mut scratch = String::with_capacity(MATCH_TEXT_CAPACITY);
        let mut matches = SmallVec::with_capacity(request.descriptors.len());
        let exceptions = rules.exceptions_of(domain);
        for (index, descriptor) in request.descriptors.iter().enumerate() {
            let override_limit =
                self.override_limit(descriptor).map_err(|cause| PlanError::Override { index, cause })?;
            let mut matched = match override_limit {
                Some(limit) => {
                    let limits = Limits::Own(SmallVec::from_iter([limit]));
                    Match { rule: None, limits, walk: Walk::default() }
                }
                None => {
                    let walk = domain.walk(&descriptor.entries, &mut scratch);
                    let rule = walk.end.and_then(|node| node.rule.as_ref());
                    Match { rule, limits: Limits::OfRule(rule.map_or(&[], |rule| &rule.limits)), walk }
                }
            };
            if descriptor.pause().is_some() {
                matched.limits = Limits::OfRule(&[]);
            } else if exceptions.is_some() || matched.rule.is_some_and(|rule| rule.takes_tier) {
                let changing = Changing { matching: self, exceptions, descriptor, index };
                changing.change(&mut matched, derivations);
            }
            matches.push(matched);
        }
        Ok(matches)
    }

    /// The descriptor's override as a limit. It never shares a counter with a rule's limit.
    fn override_limit(&self, descriptor: &Descriptor) -> Result<Option<Arc<Limit>>, LimitError> {
        let Some(LimitOverride { requests_per_unit, period }) = descriptor.limit else {
            return Ok(None);
        };
        let rules = self.planning.rules;
        let mut spec = rules.defaults().limit(requests_per_unit.into(), period);
        if spec.is_epoch_month() {
            spec.calendar.clone_from(&rules.compiled.month_calendar);
        }
        let mut limit = Limit::new(spec)?.placed(rules.compiled.next_limit_id(), "override");
        limit.fingerprint = format!("o:{}", limit.fingerprint).into();
        Ok(Some(Arc::new(limit)))
    }
}

/// The label if an exception denies a descriptor without a rule.
const BLOCKED: &str = "exception";

/// A descriptor whose domain has exceptions, or whose rule has tiers.
struct Changing<'m, 'r> {
    matching: &'m Matching<'r, 'm>,
    exceptions: Option<DomainLookUp<'r>>,
    descriptor: &'m Descriptor,
    index: usize,
}

impl Changing<'_, '_> {
    fn change(&self, matched: &mut Match<'_>, derivations: &mut Vec<Derivation>) {
        let entries = &self.descriptor.entries;
        let hash_of = |entry| self.matching.hidden.get(self.index, entry);
        let now_us = self.matching.planning.at.now_us;
        let rows = self.exceptions.map(|exceptions| exceptions.rows(entries, hash_of, now_us));
        let mut rows = rows.unwrap_or_default();
        if self.descriptor.attached.is_some() {
            // A settle denies nothing, and a renewal belongs to an admitted request.
            rows.leave_out_blocks();
        }
        let entry_tier = self.entry_tier(&matched.walk);
        if rows.is_empty() && entry_tier.is_none() {
            return;
        }
        let mut changes = Changes { index: self.index, limits: SmallVec::new(), derivations };
        match matched.rule {
            Some(rule) => {
                for limit in &rule.limits {
                    changes
                        .add(Amount::for_limit(limit), rows.change(limit, rule.path_in_domain(), entry_tier));
                }
            }
            None => self.block(matched, &rows, &mut changes),
        }
        if !changes.limits.is_empty() {
            matched.limits = Limits::Own(changes.limits);
        }
    }

    /// The tier named by an entry of the descriptor; if there are several, by the deepest.
    fn entry_tier(&self, walk: &Walk<'_>) -> Option<&str> {
        let deepest = walk.steps.iter().rposition(|step| step.node().is_tier)?;
        Some(&self.descriptor.entries.get(deepest)?.value)
    }

    /// A blocking exception also denies descriptors with an override, and descriptors without a rule.
    fn block(&self, matched: &Match<'_>, rows: &MatchedRows<'_>, changes: &mut Changes<'_>) {
        let (from, limit, rule) = match matched.limits() {
            [own, ..] => {
                let walk = self.matching.planning.domain.walk(&self.descriptor.entries, &mut String::new());
                (Amount::for_limit(own), Arc::clone(own), walk.end.and_then(|node| node.rule.as_deref()))
            }
            [] => {
                let spec = LimitSpec::new(
                    self.matching.planning.rules.defaults().algorithm,
                    0,
                    Period::one(Unit::Second),
                );
                let Ok(limit) = Limit::new(spec) else { return };
                let limit = limit.placed(self.matching.planning.rules.compiled.next_limit_id(), BLOCKED);
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
