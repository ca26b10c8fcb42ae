//! Tiers: the numbers of one limit for customers of several plans. A tier is compiled with its limit. It has the
//! limit's place, name, options and, where its kernel allows it, counter.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;

use super::algorithm::{Blocked, Kernel};
use super::limit::{Charging, Limit, LimitError, LimitSpec, Quantity};

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
    pub(super) fn with_placed_tiers(mut self) -> Self {
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
    pub(super) fn with_number(&self, number: u64, rule: &Self) -> Result<Self, LimitError> {
        let mut spec = self.spec.clone();
        spec.tiers.clear();
        spec.burst = spec.scaled_burst(number);
        spec.requests_per_unit = number;
        Ok(Self { shadow: self.shadow, ..Self::new(spec)?.in_place_of(rule) })
    }

    /// A limit that denies every hit in place of this one. `until_us`: the end of that.
    pub(super) fn as_blocked(&self, until_us: Option<u64>) -> Self {
        let spec = LimitSpec {
            requests_per_unit: 0,
            unlimited: false,
            burst: None,
            charging: Charging::Prepaid,
            tiers: BTreeMap::new(),
            ..self.spec.clone()
        };
        let kernel = Kernel::Blocked(Blocked::new(spec.period.us()).until(until_us));
        let fingerprint = kernel.fingerprint().into();
        let quantity = Quantity::Limited(kernel);
        let (label, tiers) = (Arc::clone(&self.label), Box::default());
        Self { id: self.id, spec, quantity, shadow: false, label, fingerprint, blocked: true, tiers }
    }

    /// A limit that admits every hit in place of this one.
    pub(super) fn as_exempt(&self) -> Self {
        let spec = LimitSpec { unlimited: true, tiers: BTreeMap::new(), ..self.spec.clone() };
        let (quantity, label, tiers) = (Quantity::Unlimited, Arc::clone(&self.label), Box::default());
        Self {
            id: self.id,
            spec,
            quantity,
            shadow: self.shadow,
            label,
            fingerprint: "".into(),
            blocked: false,
            tiers,
        }
    }

    /// The limit in the place of `rule`. The counter of most kernels means the same for another number, so that what is
    /// used stays used. The tokens of an interval bucket are those that are left: they depend on its numbers.
    fn in_place_of(self, rule: &Self) -> Self {
        let fingerprint = match (self.quantity, rule.quantity) {
            (Quantity::Limited(Kernel::IntervalBucket(_) | Kernel::Blocked(_)), _) => self.fingerprint,
            (Quantity::Limited(own), Quantity::Limited(of_rule))
                if discriminant(&own) == discriminant(&of_rule) =>
            {
                rule.fingerprint.clone()
            }
            _ => self.fingerprint,
        };
        Self { id: rule.id, label: Arc::clone(&rule.label), shadow: rule.shadow, fingerprint, ..self }
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
        let mut spec = self.clone();
        spec.tiers.clear();
        match tier {
            Tier::Unlimited => spec.unlimited = true,
            Tier::Limited { requests_per_unit, burst } => {
                spec.burst = burst.or_else(|| self.scaled_burst(requests_per_unit));
                spec.requests_per_unit = requests_per_unit;
            }
        }
        spec
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
