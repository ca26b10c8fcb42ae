//! Tiers: the numbers of one limit for customers of several plans. A tier is compiled with its limit. It has the
//! limit's place, name, options and, where its kernel allows it, counter.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;

use crate::limit::algorithm::{Blocked, Kernel};
use crate::limit::{Charging, Limit, LimitError, LimitSpec, Quantity};

/// The numbers of a limit for one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Not counted, always admitted.
    Unlimited,
    Limited {
        requests_per_unit: u64,
        /// `None`: the burst of the limit, in the same proportion to the number.
        burst: Option<u32>,
    },
}

/// A limit with the numbers of a tier. Its place, its name and its options are those of the limit of the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierLimit {
    pub name: Arc<str>,
    pub limit: Arc<Limit>,
}

impl Limit {
    /// The limit, with tiers that are in its place and on its counter: the last step of compiling it.
    pub(crate) fn with_placed_tiers(mut self) -> Self {
        for index in 0..self.tiers.len() {
            let limit = Self::clone(&self.tiers[index].limit).in_place_of(&self);
            self.tiers[index].limit = Arc::new(limit);
        }
        self
    }

    /// The limit with another number per period, and a burst in the same proportion. It keeps the counter of `rule`,
    /// the limit of the rule, if the counter means the same for both.
    ///
    /// # Errors
    /// [`LimitError`].
    pub(crate) fn with_number(&self, number: u64, rule: &Self) -> Result<Self, LimitError> {
        let mut spec = self.spec.without_tiers();
        spec.burst = spec.scaled_burst(number);
        spec.requests_per_unit = number;
        Ok(Self { shadow: self.shadow, ..Self::new(spec)?.in_place_of(rule) })
    }

    /// A limit that denies every hit in place of this one. `until_us`: the end of that.
    pub(crate) fn as_blocked(&self, until_us: Option<u64>) -> Self {
        let mut spec = self.spec.without_tiers();
        (spec.requests_per_unit, spec.unlimited, spec.burst) = (0, false, None);
        spec.charging = Charging::Prepaid;
        let kernel = Kernel::Blocked(Blocked::new(spec.period.us()).until(until_us));
        Self {
            quantity: Quantity::Limited(kernel),
            shadow: false,
            fingerprint: kernel.fingerprint().into(),
            blocked: true,
            ..self.with_spec(spec)
        }
    }

    /// A limit that admits every hit in place of this one.
    pub(crate) fn as_exempt(&self) -> Self {
        let spec = LimitSpec { unlimited: true, ..self.spec.without_tiers() };
        Self { quantity: Quantity::Unlimited, fingerprint: "".into(), blocked: false, ..self.with_spec(spec) }
    }

    /// The limit in shadow mode or not, without tiers.
    pub(crate) fn with_shadow(&self, shadow: bool) -> Self {
        Self { shadow, ..self.with_spec(self.spec.without_tiers()) }
    }

    /// The limit with another spec, without tiers.
    fn with_spec(&self, spec: LimitSpec) -> Self {
        Self {
            id: self.id,
            spec,
            quantity: self.quantity,
            shadow: self.shadow,
            label: Arc::clone(&self.label),
            fingerprint: self.fingerprint.clone(),
            place: self.place.clone(),
            blocked: self.blocked,
            tiers: Box::default(),
        }
    }

    /// The limit in the place of `rule`. The counter of most kernels means the same for another number, so that what is
    /// used stays used. The tokens of an interval bucket are those that are left: they depend on its numbers, so
    /// another number has another counter, and so has a limit of 0. [`Limit::place`] keeps it apart from the counters
    /// of the other limits of the rule.
    fn in_place_of(self, rule: &Self) -> Self {
        let has_same_counter = |own: Kernel| match (own, rule.quantity) {
            (Kernel::IntervalBucket(own), Quantity::Limited(Kernel::IntervalBucket(of_rule))) => {
                own == of_rule
            }
            (own, Quantity::Limited(of_rule)) => discriminant(&own) == discriminant(&of_rule),
            (_, Quantity::Unlimited) => false,
        };
        let fingerprint = match self.quantity {
            Quantity::Limited(own) if own.has_counter() && has_same_counter(own) => rule.fingerprint.clone(),
            Quantity::Limited(own) if own.has_counter() && !rule.place.is_empty() => {
                format!("{}{}", self.fingerprint, rule.place).into()
            }
            _ => self.fingerprint,
        };
        Self { id: rule.id, label: Arc::clone(&rule.label), shadow: rule.shadow, fingerprint, ..self }
    }

    /// The fingerprint of the limit if its number were 1: equal for limits of a rule that could have the same counter
    /// with other numbers.
    pub(crate) fn kind(&self) -> Box<str> {
        let one = self.spec.of_tier(Tier::Limited { requests_per_unit: 1, burst: Some(1) });
        Self::new(one).map_or_else(|_| self.fingerprint.clone(), |one| one.fingerprint)
    }

    /// The tier with this name; `None` if the limit does not have it.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<&TierLimit> {
        let found = self.tiers.binary_search_by(|tier| (*tier.name).cmp(name)).ok()?;
        Some(&self.tiers[found])
    }
}

impl LimitSpec {
    /// The limit for a tier, without tiers of its own.
    #[must_use]
    pub fn of_tier(&self, tier: Tier) -> Self {
        let mut spec = self.without_tiers();
        match tier {
            Tier::Unlimited => spec.unlimited = true,
            Tier::Limited { requests_per_unit, burst } => {
                spec.burst = burst.or_else(|| self.scaled_burst(requests_per_unit));
                spec.requests_per_unit = self.at_least_reserved(requests_per_unit);
            }
        }
        spec
    }

    /// A copy that leaves the tiers out, of which a limit can have many.
    fn without_tiers(&self) -> Self {
        Self {
            calendar: self.calendar.clone(),
            name: self.name.clone(),
            replaces: self.replaces.clone(),
            tiers: BTreeMap::new(),
            ..*self
        }
    }

    /// The burst in the same proportion to another number: rounded up, at least 1. A limit without a written burst has
    /// its number as burst, whatever the number is.
    fn scaled_burst(&self, number: u64) -> Option<u32> {
        let (burst, from) = (self.burst?, self.requests_per_unit);
        if from == 0 {
            return Some(burst);
        }
        let scaled = (u128::from(burst) * u128::from(number)).div_ceil(u128::from(from));
        Some(u32::try_from(scaled).unwrap_or(u32::MAX).max(1))
    }
}
