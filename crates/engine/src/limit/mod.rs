//! One limit of a rule: its spec, checked, with its kernel. The files below know neither rules nor requests.
//!
//! A tier has the numbers of a limit for customers of one plan. It is compiled with its limit, and has the limit's
//! place, name, options and, where its kernel allows it, counter.

pub mod algorithm;
pub(crate) mod announce;
pub(crate) mod calendar;
pub(crate) mod cost;
pub(crate) mod key;
pub(crate) mod parse_key;
pub(crate) mod period;
pub(crate) mod role;
pub(crate) mod space_saving;
pub(crate) mod spec;

use std::mem::discriminant;
use std::sync::Arc;

use self::algorithm::{
    Blocked, CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, LONGEST_REFILL_US, Pacing,
    SlidingLog, SlidingWindow,
};
use self::announce::OnOver;
use self::role::Role;
use self::spec::{Algorithm, Charging, LimitError, LimitSpec, Refill, Tier};

/// Position of a limit in its [`RuleSet`](crate::RuleSet), dense from 0: an index for per-limit tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(pub u32);

/// Whether a limit counts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Not counted, always admitted.
    Unlimited,
    /// The kernel of a calendar has no windows of its own: [`Limit::kernel_at`] has those around a time.
    Limited(Kernel),
}

/// A checked limit with its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The position of the limit in the rule set. All overrides share the position after the last limit.
    pub id: LimitId,
    /// The limit as the rule file or the request describes it, defaults filled in.
    pub spec: LimitSpec,
    /// The kernel, computed from `spec`.
    pub quantity: Quantity,
    /// Whether the limit is counted and reported, but denies nothing: its rule is in shadow mode.
    pub shadow: bool,
    /// `rate_limit.name` if there is one, else the rule's path: the `rule` label of metrics and of answers.
    pub label: Arc<str>,
    /// [`Kernel::fingerprint`]; empty if unlimited. With the kernel's numbers if another limit of the rule would have
    /// the same one. It ends the counter's key.
    pub fingerprint: Box<str>,
    /// Ends the fingerprint of another number of this limit that cannot have this fingerprint: empty, or the place of
    /// the limit in its rule if another limit of the rule could have the same counter.
    pub(crate) place: Box<str>,
    /// Whether a row of the exceptions denies every hit. No other limit replaces this one, and no mode of its rule
    /// weakens the denial.
    pub blocked: bool,
    /// The limit for each tier, sorted by name.
    pub tiers: Box<[TierLimit]>,
}

/// A limit with the numbers of a tier. Its place, its name and its options are those of the limit of the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierLimit {
    pub name: Arc<str>,
    pub limit: Arc<Limit>,
}

impl Limit {
    /// Checks `spec` and computes the kernel. [`RuleSet::compile`](crate::RuleSet::compile) gives the limit its place
    /// in a rule set; until then its id is 0, and without a name it has no label.
    ///
    /// # Errors
    /// [`LimitError`] where the numbers leave the range in which decisions are exact.
    pub fn new(spec: LimitSpec) -> Result<Self, LimitError> {
        if spec.settle && spec.algorithm == Algorithm::LeakyBucket && spec.pacing == Pacing::Queue {
            return Err(LimitError::SettledQueue);
        }
        let quantity = if spec.unlimited { Quantity::Unlimited } else { Quantity::Limited(kernel(&spec)?) };
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
        let label = spec.name.as_deref().unwrap_or_default().into();
        let (id, fingerprint, shadow, blocked) = (LimitId(0), fingerprint.into(), false, false);
        Ok(Self { id, spec, quantity, shadow, label, fingerprint, place: "".into(), blocked, tiers })
    }

    /// The name of the limit; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.spec.name.as_deref().unwrap_or_default()
    }

    /// Whether two limits of one rule would have one counter: their kernels have the same numbers.
    #[must_use]
    pub fn counts_like(&self, other: &Self) -> bool {
        match (self.quantity, other.quantity) {
            (Quantity::Limited(kernel), Quantity::Limited(of_other)) => {
                self.fingerprint == other.fingerprint && kernel.numbers() == of_other.numbers()
            }
            (Quantity::Unlimited, _) | (_, Quantity::Unlimited) => false,
        }
    }

    /// The limit with its numbers in the fingerprint: a limit of another number then has another counter.
    pub(crate) fn with_numbers(self) -> Self {
        let Quantity::Limited(kernel) = self.quantity else { return self };
        Self { fingerprint: format!("{}{}", self.fingerprint, kernel.numbers()).into(), ..self }
    }

    /// The limit with its place in a rule set: `path` is the path of its rule.
    pub(crate) fn placed(self, id: LimitId, path: impl Into<Arc<str>>) -> Self {
        let label = if self.spec.name.is_some() { self.label } else { path.into() };
        Self { id, label, ..self }
    }

    /// The kernel of charges that are planned at `now_us` (microseconds since the epoch); `None` if unlimited.
    #[must_use]
    pub fn kernel_at(&self, now_us: u64) -> Option<Kernel> {
        let Quantity::Limited(kernel) = self.quantity else { return None };
        let Some(calendar) = &self.spec.calendar else { return Some(kernel) };
        Some(match kernel {
            Kernel::CalendarWindow(k) => Kernel::CalendarWindow(k.with_boundaries(calendar.around(now_us))),
            Kernel::Blocked(k) => Kernel::Blocked(k.within(calendar.window(now_us))),
            kernel => kernel,
        })
    }

    /// Whether the limit is counted and reported, but never denies: its rule is in shadow mode, or it only announces.
    #[must_use]
    pub fn never_denies(&self) -> bool {
        self.shadow || self.spec.on_over == OnOver::Announce
    }

    /// Whether a store counts for the limit: it does not for an unlimited one and for one that admits nothing.
    #[must_use]
    pub fn has_counter(&self) -> bool {
        matches!(self.quantity, Quantity::Limited(kernel) if kernel.has_counter())
    }

    /// The role of a charge to this limit, where a charge to a limit that can deny has the role `denying`.
    pub(crate) fn role(&self, denying: Role) -> Role {
        match self.spec.on_over {
            // A row that blocks denies whatever the mode of the rule.
            _ if self.blocked => Role::Enforce,
            _ if self.shadow => Role::Shadow,
            OnOver::Deny => denying,
            OnOver::Announce => Role::Announced,
        }
    }

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
            spec,
            label: Arc::clone(&self.label),
            fingerprint: self.fingerprint.clone(),
            place: self.place.clone(),
            tiers: Box::default(),
            ..*self
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

fn kernel(spec: &LimitSpec) -> Result<Kernel, LimitError> {
    let limit = spec.requests_per_unit;
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
