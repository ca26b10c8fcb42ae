//! One limit of a rule: its validated spec with its kernel.
//!
//! A tier holds the values of a limit for customers of one plan. It is compiled with its limit and shares the limit's
//! position, name and options and, if its kernel allows, its counter.

pub mod algorithm;
pub(crate) mod announce;
pub(crate) mod calendar;
pub(crate) mod key;
pub(crate) mod parse_key;
pub(crate) mod pauses;
pub(crate) mod period;
pub(crate) mod space_saving;
pub(crate) mod spec;

use std::mem::discriminant;
use std::sync::Arc;

use self::algorithm::{
    Blocked, CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, LONGEST_REFILL_US, Pacing,
    SlidingLog, SlidingWindow, Slots,
};
use self::announce::OnOver;
use self::key::GLOBAL;
use self::spec::{Algorithm, Charging, LimitError, LimitSpec, MAX_LIMIT, Refill, Scope, Tier};

/// Position of a limit in its [`RuleSet`](crate::RuleSet), dense from 0: an index for per-limit tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(pub u32);

/// Whether a limit counts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Not counted, always admitted.
    Unlimited,
    /// A calendar kernel has no windows yet: [`Limit::kernel_at`] adds those around a time.
    Limited(Kernel),
}

/// A validated [`LimitSpec`] with its kernel and its position among the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Position in the rule set. All overrides share the position after the last limit.
    pub id: LimitId,
    /// As in the rule file or the request, with defaults filled in.
    pub spec: LimitSpec,
    /// Computed from `spec`.
    pub quantity: Quantity,
    /// `true` if the limit is counted and reported but denies nothing, because its rule is in shadow mode.
    pub shadow: bool,
    /// `rate_limit.name`, else the rule's path: the `rule` label of metrics and answers.
    pub label: Arc<str>,
    /// End of the counter key: [`Kernel::fingerprint`], after `g:` if all regions share it; empty if unlimited. With
    /// [`Kernel::numbers`] if another limit of the rule would share the fingerprint.
    pub fingerprint: Box<str>,
    /// Suffix for the fingerprint of a variant of this limit (a tier or exception) that cannot share this fingerprint.
    /// Empty, or the index of the limit in its rule if another limit of the rule could get the same counter.
    pub(crate) place: Box<str>,
    /// `true` if an exception denies every hit. No other limit replaces this one, and no mode of its rule weakens the
    /// denial.
    pub blocked: bool,
    /// Sorted by name.
    pub tiers: Box<[TierLimit]>,
}

/// A limit with the values of a tier; position, name and options are those of the rule's limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierLimit {
    pub name: Arc<str>,
    pub limit: Arc<Limit>,
}

impl Limit {
    /// Validates `spec` and computes the kernel. [`RuleSet::compile`](crate::RuleSet::compile) sets the id, which is 0
    /// until then, and the label of a limit without a name.
    ///
    /// # Errors
    /// [`LimitError`] if the values leave the range in which decisions are exact.
    pub fn new(spec: LimitSpec) -> Result<Self, LimitError> {
        spec.check_concurrency()?;
        // A receipt names the slot, whatever the rule says.
        let settle = spec.settle || spec.algorithm == Algorithm::Concurrency;
        let spec = LimitSpec { settle, ..spec };
        if spec.settle && spec.algorithm == Algorithm::LeakyBucket && spec.pacing == Pacing::Queue {
            return Err(LimitError::SettledQueue);
        }
        if spec.count && spec.algorithm != Algorithm::FixedWindow {
            return Err(LimitError::CountAlgorithm { algorithm: spec.algorithm });
        }
        let quantity =
            if spec.is_counted() { Quantity::Limited(kernel(&spec)?) } else { Quantity::Unlimited };
        let of_tier = |(name, tier): (&String, &Tier)| {
            let limit = Arc::new(Self::new(spec.of_tier(*tier))?);
            Ok(TierLimit { name: name.as_str().into(), limit })
        };
        let tiers = spec.tiers.iter().map(of_tier).collect::<Result<_, LimitError>>()?;
        let fingerprint = match quantity {
            Quantity::Unlimited => String::new(),
            Quantity::Limited(kernel) => match &spec.calendar {
                Some(calendar) if kernel.has_counter() => format!("fw:c:{calendar}"),
                _ => kernel.fingerprint(),
            },
        };
        let fingerprint = match spec.scope {
            Scope::Global if spec.is_counted() => format!("{GLOBAL}{fingerprint}"),
            _ => fingerprint,
        };
        let label = spec.name.as_deref().unwrap_or_default().into();
        let (id, fingerprint, shadow, blocked) = (LimitId(0), fingerprint.into(), false, false);
        Ok(Self { id, spec, quantity, shadow, label, fingerprint, place: "".into(), blocked, tiers })
    }

    /// Empty if the limit is unnamed.
    pub fn name(&self) -> &str {
        self.spec.name.as_deref().unwrap_or_default()
    }

    /// `true` if two limits of one rule would share a counter, because their kernels are equal.
    pub fn counts_like(&self, other: &Self) -> bool {
        match (self.quantity, other.quantity) {
            (Quantity::Limited(kernel), Quantity::Limited(of_other)) => {
                self.fingerprint == other.fingerprint && kernel.numbers() == of_other.numbers()
            }
            (Quantity::Unlimited, _) | (_, Quantity::Unlimited) => false,
        }
    }

    /// Adds [`Kernel::numbers`] to the fingerprint, so that limits with other values have other counters.
    pub(crate) fn with_numbers(self) -> Self {
        let Quantity::Limited(kernel) = self.quantity else { return self };
        Self { fingerprint: format!("{}{}", self.fingerprint, kernel.numbers()).into(), ..self }
    }

    /// Sets the id and, if the limit has no name, `path` (the path of its rule) as label.
    pub(crate) fn placed(self, id: LimitId, path: impl Into<Arc<str>>) -> Self {
        let label = if self.spec.name.is_some() { self.label } else { path.into() };
        Self { id, label, ..self }
    }

    /// Returns the kernel for charges planned at `now_us` (microseconds since the epoch); `None` if nothing is counted.
    pub fn kernel_at(&self, now_us: u64) -> Option<Kernel> {
        let Quantity::Limited(kernel) = self.quantity else { return None };
        let Some(calendar) = &self.spec.calendar else { return Some(kernel) };
        Some(match kernel {
            Kernel::CalendarWindow(k) => Kernel::CalendarWindow(k.with_boundaries(calendar.around(now_us))),
            Kernel::Blocked(k) => Kernel::Blocked(k.within(calendar.window(now_us))),
            kernel => kernel,
        })
    }

    /// Returns start and end of the window that contains `us`, all in microseconds since the epoch. `None` if the
    /// limit is unlimited or not a fixed window: only the windows of these depend on the time alone.
    pub fn window_at(&self, us: u64) -> Option<(u64, u64)> {
        if self.spec.unlimited || self.spec.algorithm != Algorithm::FixedWindow {
            return None;
        }
        let epoch_aligned = || {
            let start_us = us - us % self.spec.period.us();
            (start_us, start_us.saturating_add(self.spec.period.us()))
        };
        Some(self.spec.calendar.as_ref().map_or_else(epoch_aligned, |calendar| calendar.window(us)))
    }

    /// `true` if the limit never denies, even if it is counted: its rule is in shadow mode, it only announces, or it is
    /// unlimited.
    pub fn never_denies(&self) -> bool {
        self.shadow || self.spec.unlimited || self.spec.on_over == OnOver::Announce
    }

    /// `true` if a store counts for the limit. An unlimited limit without `count` and one that admits nothing have no
    /// counter.
    pub fn has_counter(&self) -> bool {
        matches!(self.quantity, Quantity::Limited(kernel) if kernel.has_counter())
    }

    /// Moves the tiers to the limit's position and counter: the last step of compiling it.
    pub(crate) fn with_placed_tiers(mut self) -> Self {
        for index in 0..self.tiers.len() {
            let limit = Self::clone(&self.tiers[index].limit).in_place_of(&self);
            self.tiers[index].limit = Arc::new(limit);
        }
        self
    }

    /// Returns the limit with another value per period and a burst in the same proportion. It keeps the counter of
    /// `rule`, the rule's own limit, if the state means the same for both.
    ///
    /// # Errors
    /// [`LimitError`].
    pub(crate) fn with_number(&self, number: u64, rule: &Self) -> Result<Self, LimitError> {
        let mut spec = self.spec.without_tiers();
        spec.burst = spec.scaled_burst(number);
        spec.requests_per_unit = number;
        Ok(Self { shadow: self.shadow, ..Self::new(spec)?.in_place_of(rule) })
    }

    /// Returns a limit that denies every hit, until `until_us`.
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

    /// Returns a limit that admits every hit.
    pub(crate) fn as_exempt(&self) -> Self {
        let spec = LimitSpec { unlimited: true, count: false, ..self.spec.without_tiers() };
        Self { quantity: Quantity::Unlimited, fingerprint: "".into(), blocked: false, ..self.with_spec(spec) }
    }

    /// Sets shadow mode and drops the tiers.
    pub(crate) fn with_shadow(&self, shadow: bool) -> Self {
        Self { shadow, ..self.with_spec(self.spec.without_tiers()) }
    }

    /// Replaces the spec and drops the tiers.
    fn with_spec(&self, spec: LimitSpec) -> Self {
        Self {
            spec,
            label: Arc::clone(&self.label),
            fingerprint: self.fingerprint.clone(),
            place: self.place.clone(),
            tiers: Box::default(),
            ..*self
        }
    }

    /// Moves the limit to the position of `rule`. The counter of most kernels means the same for another limit, so
    /// usage carries over. The tokens left in an interval bucket depend on its parameters, so another value means
    /// another counter, as does a limit of 0. [`Limit::place`] keeps that counter apart from those of the rule's other
    /// limits.
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

    /// The fingerprint as if the limit were 1: equal for limits of a rule that could share a counter with other values.
    pub(crate) fn kind(&self) -> Box<str> {
        let one = self.spec.of_tier(Tier::Limited { requests_per_unit: 1, burst: Some(1) });
        Self::new(one).map_or_else(|_| self.fingerprint.clone(), |one| one.fingerprint)
    }

    pub fn tier(&self, name: &str) -> Option<&TierLimit> {
        let found = self.tiers.binary_search_by(|tier| (*tier.name).cmp(name)).ok()?;
        Some(&self.tiers[found])
    }
}

fn kernel(spec: &LimitSpec) -> Result<Kernel, LimitError> {
    // Nothing reaches this number.
    let limit = if spec.unlimited { MAX_LIMIT } else { spec.requests_per_unit };
    let period_us = spec.period.us();
    if spec.algorithm.has_burst() && spec.burst == Some(0) {
        return Err(LimitError::ZeroBurst);
    }
    if spec.calendar.is_some() && spec.algorithm != Algorithm::FixedWindow {
        return Err(LimitError::CalendarAlgorithm { algorithm: spec.algorithm });
    }
    if limit == 0 {
        return Ok(Kernel::Blocked(Blocked::new(period_us)));
    }
    let most = spec.algorithm.max_limit();
    if limit > most {
        return Err(match spec.algorithm {
            Algorithm::SlidingLog => LimitError::LogTooLong { limit },
            algorithm => LimitError::TooLarge { algorithm, limit, most },
        });
    }
    Ok(match spec.algorithm {
        Algorithm::FixedWindow if spec.calendar.is_some() => {
            Kernel::CalendarWindow(CalendarWindow::new(limit, [0, period_us, 2 * period_us]))
        }
        Algorithm::FixedWindow => Kernel::FixedWindow(FixedWindow::new(limit, period_us)),
        Algorithm::SlidingWindow => Kernel::SlidingWindow(SlidingWindow::new(limit, period_us)),
        Algorithm::SlidingLog => Kernel::SlidingLog(SlidingLog::new(limit, period_us)),
        Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => return bucket_kernel(spec),
        Algorithm::Concurrency => Kernel::Slots(Slots::new(limit, period_us)),
    })
}

fn bucket_kernel(spec: &LimitSpec) -> Result<Kernel, LimitError> {
    let (limit, burst) = (spec.requests_per_unit, spec.capacity());
    let too_long = LimitError::RefillTooLong { burst, limit, period: spec.period };
    let refill_us = match spec.refill {
        Refill::Continuous => u128::from(burst) * u128::from(spec.period.us()) / u128::from(limit),
        Refill::Interval => u128::from(burst.div_ceil(limit)) * u128::from(spec.period.us()),
    };
    if refill_us > u128::from(LONGEST_REFILL_US) {
        return Err(too_long);
    }
    Ok(match spec.refill {
        Refill::Interval => Kernel::IntervalBucket(IntervalBucket::new(burst, limit, spec.period.us())),
        Refill::Continuous => Kernel::Gcra(Gcra::new(limit, spec.period.us(), burst, spec.pacing)),
    })
}
