//! One limit of a rule: how much, over what period, by which algorithm, and the options beside these.

pub mod algorithm;
pub(crate) mod announce;
pub(crate) mod calendar;
pub(crate) mod key;
pub(crate) mod parse_key;
pub(crate) mod period;
pub(crate) mod role;
pub(crate) mod space_saving;
pub(crate) mod tier;

use std::collections::BTreeMap;
use std::sync::Arc;

use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

use crate::limit::algorithm::{
    Blocked, CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, MAX_LOG_LIMIT, Pacing, SlidingLog,
    SlidingWindow,
};
use crate::limit::announce::{OnOver, Share};
use crate::limit::calendar::Calendar;
use crate::limit::period::Period;
use crate::limit::tier::{Tier, TierLimit};

/// The longest time in which an empty bucket may fill: 10 years of 365 days, below 2^49 us.
pub const LONGEST_REFILL_US: u64 = 10 * 365 * 86_400 * 1_000_000;

/// The largest limit of any algorithm: sums of two limits are exact where numbers are doubles, as in Redis.
pub const MAX_LIMIT: u64 = 1 << 52;

/// Position of a limit in its [`RuleSet`](crate::RuleSet), dense from 0: an index for per-limit tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(pub u32);

/// An algorithm as rule files name it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    EnumString,
    IntoStaticStr,
    Display,
    VariantArray,
    VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum Algorithm {
    /// Windows aligned to the epoch.
    #[default]
    FixedWindow,
    /// Two-bucket counter: estimates the sliding log from two counts.
    SlidingWindow,
    /// Exact log of every grant.
    SlidingLog,
    /// Generic cell rate algorithm.
    Gcra,
    /// Tokens that are added continuously or once per interval.
    TokenBucket,
    /// A bucket that drains at a constant rate: a meter, or a queue that answers with a delay.
    LeakyBucket,
}

impl Algorithm {
    /// Every algorithm, in the order of the documentation.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The name in rule files and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The largest limit for which the algorithm's decisions are exact.
    #[must_use]
    pub fn max_limit(self) -> u64 {
        match self {
            Self::FixedWindow => MAX_LIMIT,
            Self::SlidingWindow => 1 << 46,
            Self::SlidingLog => MAX_LOG_LIMIT,
            Self::Gcra | Self::TokenBucket | Self::LeakyBucket => u32::MAX.into(),
        }
    }

    /// Whether the algorithm uses `burst`.
    #[must_use]
    pub fn has_burst(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }
}

/// When a hit is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Charging {
    /// A hit is recorded when it fits: a denied hit changes nothing.
    Prepaid,
    /// A hit is always recorded, admitted or not. The debt is at most one further limit (or burst), except in a fixed
    /// window, whose end discards it.
    Postpaid,
}

impl Charging {
    /// The name in rule files and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a limit answers when the store cannot decide.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum FailurePolicy {
    Allow,
    Deny,
    /// This process decides from counters in its own memory.
    Local,
    /// The whole call fails; the failure mode of the caller decides.
    #[default]
    Error,
}

impl FailurePolicy {
    /// Every policy.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The name in rule files and settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The policy of a non-binding limit: a limit that denies nothing must not fail a call either.
    #[must_use]
    pub fn for_non_binding(self) -> Self {
        if self == Self::Error { Self::Allow } else { self }
    }
}

/// How tokens are added to a token bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Refill {
    /// Tokens are added evenly, fractions included.
    #[default]
    Continuous,
    /// Tokens are added all at once, at the end of each period.
    Interval,
}

impl Refill {
    /// The name in rule files: the value of `refill`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One limit as a rule file or a request describes it, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSpec {
    /// Units per period; 0 blocks. Ignored when `unlimited`.
    pub requests_per_unit: u64,
    /// The time in which `requests_per_unit` are admitted. Ignored when `unlimited`.
    pub period: Period,
    /// Whether the limit is never counted and always admits.
    pub unlimited: bool,
    pub algorithm: Algorithm,
    /// The calendar whose days, weeks, months or years are the windows; the unit of `period` says which. `None`:
    /// windows of `period` from the epoch. Only for a fixed window.
    pub calendar: Option<Arc<Calendar>>,
    /// Units that an unused counter admits at once; `None` = `requests_per_unit`. Only for algorithms with
    /// [`Algorithm::has_burst`].
    pub burst: Option<u32>,
    /// The refill of a token bucket. Other algorithms ignore it.
    pub refill: Refill,
    /// What a leaky bucket does with a hit that has to wait. Other algorithms ignore it.
    pub pacing: Pacing,
    pub charging: Charging,
    /// Whether an admitted request gets a receipt, with which its caller settles: the hits of the request are an
    /// estimate, and only the difference to the real cost is booked later.
    pub settle: bool,
    pub on_store_failure: FailurePolicy,
    pub on_over: OnOver,
    /// Answers announce the limit while more than this share of it is used; `None` = never.
    pub near: Option<Share>,
    /// Units that a check takes until the charge after it books the difference, at least 1; `None` = nothing.
    pub reserve: Option<u64>,
    /// The name that the answer and the metrics show, and that `replaces` refers to.
    pub name: Option<String>,
    /// Names of the limits that this one replaces in a request.
    pub replaces: Vec<String>,
    /// The numbers that count for values with a tier, by its name. An unlimited limit has none.
    pub tiers: BTreeMap<String, Tier>,
}

/// Why a limit is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A calendar beside another algorithm than the fixed window.
    #[error("a calendar needs algorithm fixed_window, not {algorithm}")]
    CalendarAlgorithm { algorithm: Algorithm },
    #[error("burst must be at least 1; use requests_per_unit: 0 to block")]
    ZeroBurst,
    /// A sliding log above [`MAX_LOG_LIMIT`].
    #[error(
        "the limit of a sliding_log is at most {MAX_LOG_LIMIT}, not {limit}, because every grant is stored; use sliding_window or gcra"
    )]
    LogTooLong { limit: u64 },
    /// Above the range in which the algorithm is exact.
    #[error("the limit of a {algorithm} is at most {most}, not {limit}")]
    TooLarge { algorithm: Algorithm, limit: u64, most: u64 },
    /// An empty bucket would take longer than [`LONGEST_REFILL_US`] to fill.
    #[error("burst of {burst} at {limit} per {period} takes more than ten years to refill")]
    RefillTooLong {
        /// Tokens of a full bucket.
        burst: u64,
        limit: u64,
        period: Period,
    },
    /// A queue with `settle`.
    #[error("settle does not work with mode: queue, whose hits have already waited for their turn")]
    SettledQueue,
}

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
}

impl LimitSpec {
    /// `requests_per_unit` per `period`, prepaid, with the defaults of all other fields.
    #[must_use]
    pub fn new(algorithm: Algorithm, requests_per_unit: u64, period: Period) -> Self {
        Self {
            requests_per_unit,
            period,
            unlimited: false,
            algorithm,
            calendar: None,
            burst: None,
            refill: Refill::default(),
            pacing: Pacing::default(),
            charging: Charging::Prepaid,
            settle: false,
            on_store_failure: FailurePolicy::default(),
            on_over: OnOver::default(),
            near: None,
            reserve: None,
            name: None,
            replaces: Vec::new(),
            tiers: BTreeMap::new(),
        }
    }

    /// Units of a full counter: `burst` if the algorithm has one, else `requests_per_unit`. Headers, metrics and
    /// explanations show it.
    ///
    /// [`Kernel::max_cost`] is the largest cost that is ever admitted. The two differ for a limit of 0 with a burst: it
    /// has the capacity that is written, but it admits nothing.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self.burst {
            Some(burst) if self.algorithm.has_burst() => u64::from(burst),
            _ => self.requests_per_unit,
        }
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
