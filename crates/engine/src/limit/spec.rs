//! A limit as a rule file or a request describes it, unchecked: how much, over what period, by which algorithm, the
//! options beside these, and the numbers of its tiers.

use std::collections::BTreeMap;
use std::sync::Arc;

use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

use super::algorithm::{MAX_LOG_LIMIT, Pacing};
use super::announce::{OnOver, Share};
use super::calendar::Calendar;
use super::period::{Period, Unit};

/// The largest limit of any algorithm: sums of two limits are exact where numbers are doubles, as in Redis.
pub const MAX_LIMIT: u64 = 1 << 52;

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

    /// `allow` in place of `error`, for a limit that denies nothing: it must not fail a call either.
    #[must_use]
    pub fn allow_for_error(self) -> Self {
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
        "limit of a sliding_log: expected at most {MAX_LOG_LIMIT}, found {limit}, because every hit is \
         stored; use sliding_window or gcra"
    )]
    LogTooLong { limit: u64 },
    /// Above the range in which the algorithm is exact.
    #[error("limit of a {algorithm}: expected at most {most}, found {limit}")]
    TooLarge { algorithm: Algorithm, limit: u64, most: u64 },
    /// An empty bucket would take longer than [`LONGEST_REFILL_US`](crate::LONGEST_REFILL_US) to fill.
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

/// Why a limit cannot have `reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    #[error("reserve must be at least 1; leave it out to reserve nothing")]
    Zero,
    /// A postpaid check would be recorded although it is denied.
    #[error("reserve needs charging: prepaid, but this limit is postpaid")]
    Postpaid,
    /// The caller was told a delay for the reserved units already.
    #[error("reserve does not work with mode: queue, which answers with the delay of the reserved units")]
    Queue,
    /// A receipt says how much was taken, so nothing has to be reserved.
    #[error("reserve does not work with settle: a caller that returns receipts needs no reserve")]
    Settle,
    #[error(
        "reserve: expected at most {capacity}, the most that the limit admits at once, found {reserve}; \
         every check would be denied"
    )]
    AboveLimit { reserve: u64, capacity: u64 },
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
    /// `Kernel::max_cost` is the largest cost that is ever admitted. The two differ for a limit of 0 with a burst: it
    /// has the capacity that is written, but it admits nothing.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self.burst {
            Some(burst) if self.algorithm.has_burst() => u64::from(burst),
            _ => self.requests_per_unit,
        }
    }

    /// Whether answers can announce the limit.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.on_over == OnOver::Announce || self.near.is_some()
    }

    /// Whether the limit is a fixed window of one month without a calendar: 30 days from the epoch.
    #[must_use]
    pub fn is_epoch_month(&self) -> bool {
        let is_window = self.algorithm == Algorithm::FixedWindow && !self.unlimited;
        is_window && self.calendar.is_none() && self.period == Period::one(Unit::Month)
    }

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
    pub(super) fn without_tiers(&self) -> Self {
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
    pub(super) fn scaled_burst(&self, number: u64) -> Option<u32> {
        let (burst, from) = (self.burst?, self.requests_per_unit);
        if from == 0 {
            return Some(burst);
        }
        let scaled = (u128::from(burst) * u128::from(number)).div_ceil(u128::from(from));
        Some(u32::try_from(scaled).unwrap_or(u32::MAX).max(1))
    }

    /// Checks that the limit can have the `reserve` that it has.
    ///
    /// # Errors
    /// [`ReserveError`] if it cannot.
    pub fn check_reserve(&self) -> Result<(), ReserveError> {
        let Some(reserve) = self.reserve else { return Ok(()) };
        let capacity = self.capacity();
        if reserve == 0 {
            return Err(ReserveError::Zero);
        }
        if self.charging == Charging::Postpaid {
            return Err(ReserveError::Postpaid);
        }
        if self.algorithm == Algorithm::LeakyBucket && self.pacing == Pacing::Queue {
            return Err(ReserveError::Queue);
        }
        if self.settle {
            return Err(ReserveError::Settle);
        }
        if reserve > capacity {
            return Err(ReserveError::AboveLimit { reserve, capacity });
        }
        Ok(())
    }

    /// The number that counts where a tier or a row of the exceptions says `number`: at least the reserved units, so
    /// that every check takes the same units, and a charge gives back at most what its check took, whatever the number
    /// was meanwhile. A smaller number would admit no more: one check uses it up. A bucket has a burst for this, and
    /// its rate stays what the number says. 0 blocks in any case.
    pub(crate) fn at_least_reserved(&self, number: u64) -> u64 {
        match self.reserve {
            Some(reserve) if number > 0 && !self.algorithm.has_burst() => number.max(reserve),
            _ => number,
        }
    }
}
