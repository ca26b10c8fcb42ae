//! What a plan says of the limits that a request meets: which limit each charge belongs to.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::Limit;
use crate::limit::role::Role;
use crate::request::Cost;
use crate::request::plan::Plan;
use crate::request::plan::charge::Charge;
use crate::request::plan::reserve::ReserveKind;
use crate::rules::exceptions::Derivation;
use crate::rules::rule_set::Rule;

/// The limits of one descriptor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Planned {
    /// No rule, or a rule whose limits are all replaced.
    Nothing,
    /// Only limits that never deny.
    Unlimited(Arc<Limit>),
    /// Limits that count.
    Limited {
        rule: Option<Arc<Rule>>,
        limits: SmallVec<[PlannedLimit; 2]>,
        /// `None` if the hits are counted under the path of the rule.
        stat_path: Option<Box<str>>,
    },
}

/// A limit with the index of its charge.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedLimit {
    pub(crate) limit: Arc<Limit>,
    charge: u32,
    pub(crate) reserve: Option<ReserveKind>,
}

impl PlannedLimit {
    pub(crate) fn new(limit: &Arc<Limit>, index: usize, reserve: Option<ReserveKind>) -> Self {
        let charge = u32::try_from(index).expect("a request has few charges");
        Self { limit: Arc::clone(limit), charge, reserve }
    }

    /// The index of the charge.
    fn index(&self) -> usize {
        self.charge as usize
    }
}

/// A limit that a descriptor is charged to.
#[derive(Clone, Copy, Debug)]
pub struct ChargedLimit<'p> {
    /// The rule of the limit; `None` for an override.
    pub rule: Option<&'p Rule>,
    pub limit: &'p Limit,
    pub cost: Cost,
    pub role: Role,
    /// Whether it is the check or the charge of a limit with `reserve`.
    pub reserve: Option<ReserveKind>,
    /// The path with values of the request under which its hits are counted; `None` if it is the path of the rule.
    pub stat_path: Option<&'p str>,
    /// The index of the charge.
    pub index: usize,
}

impl Plan {
    /// How the limits that exceptions or tiers have changed came about, in the order of the descriptors.
    #[must_use]
    pub fn derivations(&self) -> &[Derivation] {
        &self.derivations
    }

    /// Every charge once, with the limit of the first descriptor that it belongs to.
    pub fn charged(&self) -> impl Iterator<Item = ChargedLimit<'_>> {
        let mut next_index = 0;
        let is_first = move |charged: &ChargedLimit<'_>| {
            // Charges are numbered in the order of the descriptors, so an index below `next_index` is a charge that an
            // earlier descriptor has too.
            let is_first = charged.index >= next_index;
            next_index = next_index.max(charged.index + 1);
            is_first
        };
        self.descriptors.iter().flat_map(|planned| self.charged_limits(planned)).filter(is_first)
    }

    pub(crate) fn charged_limits<'p>(
        &'p self,
        planned: &'p Planned,
    ) -> impl Iterator<Item = ChargedLimit<'p>> {
        let (rule, limits, stat_path) = match planned {
            Planned::Limited { rule, limits, stat_path } => {
                (rule.as_deref(), limits.as_slice(), stat_path.as_deref())
            }
            Planned::Nothing | Planned::Unlimited(_) => (None, &[][..], None),
        };
        limits.iter().map(move |planned| {
            let PlannedLimit { ref limit, reserve, .. } = *planned;
            let index = planned.index();
            let Charge { cost, role, .. } = *self.charges.charge(index);
            ChargedLimit { rule, limit, cost, role, reserve, stat_path, index }
        })
    }

    /// The index of the first descriptor that a charge belongs to.
    #[must_use]
    pub fn descriptor_of(&self, charge: usize) -> Option<usize> {
        self.descriptors.iter().position(|planned| match planned {
            Planned::Limited { limits, .. } => limits.iter().any(|planned| planned.index() == charge),
            Planned::Nothing | Planned::Unlimited(_) => false,
        })
    }

    /// One limit for each descriptor that has only unlimited limits.
    pub fn unlimited(&self) -> impl Iterator<Item = &Limit> {
        self.descriptors.iter().filter_map(|planned| match planned {
            Planned::Unlimited(limit) => Some(limit.as_ref()),
            Planned::Nothing | Planned::Limited { .. } => None,
        })
    }

    /// Every limit with a charge, once per descriptor.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.descriptors
            .iter()
            .flat_map(|planned| match planned {
                Planned::Limited { limits, .. } => limits.as_slice(),
                Planned::Nothing | Planned::Unlimited(_) => &[],
            })
            .map(|planned| planned.limit.as_ref())
    }
}
