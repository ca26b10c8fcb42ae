//! A limit as a rule file or request describes it, before validation.

use std::collections::BTreeMap;
use std::sync::Arc;

use strum::{Display, EnumString, IntoStaticStr, VariantArray, VariantNames};

use super::algorithm::{MAX_HOLD_US, MAX_LOG_LIMIT, MAX_SLOTS, Pacing};
use super::announce::{OnOver, Share, Shares};
use super::calendar::Calendar;
use super::pauses::{Feedback, Penalty};
use super::period::{Period, Unit};

/// Largest limit of any algorithm: the sum of two limits is still exact as a double, which Redis uses.
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
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Algorithm {
    /// Windows aligned to the epoch.
    #[default]
    FixedWindow,
    /// Estimates the sliding log from two counts.
    SlidingWindow,
    /// Exact log of every grant.
    SlidingLog,
    /// Generic cell rate algorithm.
    Gcra,
    /// Refills continuously or once per interval.
    TokenBucket,
    /// Drains at a constant rate: a meter, or a queue that answers with a delay.
    LeakyBucket,
    /// Requests at once. The period is the longest time that each holds its slot.
    Concurrency,
}

impl Algorithm {
    /// In the order of the documentation.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The largest limit for which decisions are exact.
    pub fn max_limit(self) -> u64 {
        match self {
            Self::FixedWindow => MAX_LIMIT,
            Self::SlidingWindow => 1 << 46,
            Self::SlidingLog => MAX_LOG_LIMIT,
            Self::Gcra | Self::TokenBucket | Self::LeakyBucket => u32::MAX.into(),
            Self::Concurrency => MAX_SLOTS,
        }
    }

    /// `true` if the algorithm uses `burst`.
    pub fn has_burst(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }
}

/// When a hit is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Charging {
    /// Only if it fits: a denied hit changes nothing.
    Prepaid,
    /// Always, admitted or not. The debt is at most one more limit (or burst), except in a fixed window, whose end
    /// discards it.
    Postpaid,
}

/// How a limit answers if the store cannot decide.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum FailurePolicy {
    Allow,
    Deny,
    /// This process decides from counters in its own memory.
    Local,
    /// The whole call fails; the caller's failure mode decides.
    #[default]
    Error,
}

impl FailurePolicy {
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// Replaces `error` by `allow`, for a limit that denies nothing: it must not fail a call either.
    #[must_use]
    pub fn allow_for_error(self) -> Self {
        if self == Self::Error { Self::Allow } else { self }
    }
}

/// Whether processes may borrow a limit's units from the store ahead of requests, and decide from these units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Lease {
    #[default]
    Off,
    /// As many units as a process soon needs, if the limit allows it ([`LimitSpec::lease_obstacle`]).
    Auto,
}

/// Where a limit is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Scope {
    /// In the near store.
    #[default]
    Region,
    /// In the store that all regions share, from which processes borrow its units.
    Global,
}

/// How a token bucket refills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Refill {
    /// Evenly, fractions included.
    #[default]
    Continuous,
    /// All tokens together, at the end of each period.
    Interval,
}

/// One limit as a rule file or request describes it, not validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSpec {
    /// Units per period; 0 blocks. Ignored if `unlimited`.
    pub requests_per_unit: u64,
    /// Ignored if nothing is counted ([`LimitSpec::is_counted`]).
    pub period: Period,
    /// `true`: always admits.
    pub unlimited: bool,
    /// `true` if hits are counted even if `unlimited`. Only for fixed windows.
    pub count: bool,
    pub algorithm: Algorithm,
    /// The calendar whose days, weeks, months or years are the windows, chosen by the unit of `period`. `None`: windows
    /// of `period`, aligned to the epoch. Only for fixed windows.
    pub calendar: Option<Arc<Calendar>>,
    /// Units that an unused counter admits at one instant; `None`: `requests_per_unit`. Only for algorithms with
    /// [`Algorithm::has_burst`].
    pub burst: Option<u32>,
    /// Only for token buckets.
    pub refill: Refill,
    /// Only for leaky buckets.
    pub pacing: Pacing,
    pub charging: Charging,
    /// `true` if admitted requests get a receipt to settle with: their hits are an estimate, and only the difference to
    /// the real cost is booked later.
    pub settle: bool,
    pub on_store_failure: FailurePolicy,
    pub on_over: OnOver,
    /// Answers announce the limit while usage is above this share; `None`: never.
    pub near: Option<Share>,
    /// Units that a check takes until the charge after it books the difference, at least 1; `None`: nothing.
    pub reserve: Option<u64>,
    /// Bans a value after repeated denials.
    pub penalty: Option<Arc<Penalty>>,
    /// Lets callers pause a value.
    pub feedback: Option<Arc<Feedback>>,
    /// `true` if usage is booked in the ledger.
    pub ledger: bool,
    pub lease: Lease,
    pub scope: Scope,
    /// Shares of a full counter to report, once per key and period.
    pub notify: Shares,
    /// What the units are, for people; `None`: requests.
    pub unit_name: Option<Arc<str>>,
    /// Shown in answers and metrics; `replaces` refers to it.
    pub name: Option<String>,
    /// Names of the limits that this one replaces in a request.
    pub replaces: Vec<String>,
    /// Values per tier name. An unlimited limit has none.
    pub tiers: BTreeMap<String, Tier>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// A calendar with an algorithm other than fixed window.
    #[error("a calendar needs algorithm fixed_window, not {algorithm}")]
    CalendarAlgorithm { algorithm: Algorithm },
    #[error("burst must be at least 1; use requests_per_unit: 0 to block")]
    ZeroBurst,
    /// `count` needs a fixed window.
    #[error("count needs algorithm fixed_window, not {algorithm}")]
    CountAlgorithm { algorithm: Algorithm },
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
    /// A hold above [`MAX_HOLD_US`].
    #[error("a slot is held for at most {} hours, found {hold}", MAX_HOLD_US / 3_600_000_000)]
    LongHold { hold: Period },
    /// Concurrency does not work with this option.
    #[error("{option} does not work with concurrency: {reason}")]
    Concurrency { option: &'static str, reason: &'static str },
    /// A queue with `settle`.
    #[error("settle does not work with mode: queue, whose hits have already waited for their turn")]
    SettledQueue,
}

/// The values of a limit for one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Always admitted; counted with `count`.
    Unlimited,
    Limited {
        requests_per_unit: u64,
        /// `None`: the limit's burst, scaled with `requests_per_unit`.
        burst: Option<u32>,
    },
}

/// Why a limit cannot have `reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    #[error("reserve must be at least 1; leave it out to reserve nothing")]
    Zero,
    /// A postpaid check would be recorded even if denied.
    #[error("reserve needs charging: prepaid, but this limit is postpaid")]
    Postpaid,
    /// The caller already got a delay for the reserved units.
    #[error("reserve does not work with mode: queue, which answers with the delay of the reserved units")]
    Queue,
    /// A receipt records how much was taken, so nothing has to be reserved.
    #[error("reserve does not work with settle: a caller that returns receipts needs no reserve")]
    Settle,
    #[error(
        "reserve: expected at most {capacity}, the most that the limit admits at once, found {reserve}; \
         every check would be denied"
    )]
    AboveLimit { reserve: u64, capacity: u64 },
}

/// Why a limit's units are never borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseObstacle {
    #[error("a sliding_log keeps the time of each grant")]
    Log,
    #[error("a slot is released by its request")]
    Slots,
    #[error("a queue answers with the delay of each hit")]
    Queue,
    /// `settle` and `reserve` return units to the bucket. The other lent units would then end at other times.
    #[error("units of a bucket cannot be returned to it, so settle and reserve do not work with leases")]
    Returns,
    /// A cost may be charged in two windows, but its receipt names one.
    #[error("a receipt of a sliding_window names one window, but a lease can charge a cost in two")]
    SlidingReceipt,
    /// A denial can be early, and repeated denials block the value.
    #[error("a penalty counts denials, and a lease can deny early")]
    Penalty,
}

const NO_LOCAL_SLOTS: &str =
    "a release may reach another instance; use on_store_failure: allow, deny or error";

impl LimitSpec {
    /// `requests_per_unit` per `period`, prepaid, other fields at their defaults.
    pub fn new(algorithm: Algorithm, requests_per_unit: u64, period: Period) -> Self {
        Self {
            requests_per_unit,
            period,
            unlimited: false,
            count: false,
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
            penalty: None,
            feedback: None,
            ledger: false,
            lease: Lease::default(),
            scope: Scope::default(),
            notify: Shares::default(),
            unit_name: None,
            name: None,
            replaces: Vec::new(),
            tiers: BTreeMap::new(),
        }
    }

    /// Units of a full counter: `burst` if the algorithm has one, else `requests_per_unit`. Shown in headers, metrics
    /// and explanations.
    ///
    /// `Kernel::max_cost` is the largest cost that is ever admitted. The two differ for a limit of 0 with a burst,
    /// which has this capacity but admits nothing.
    pub fn capacity(&self) -> u64 {
        match self.burst {
            Some(burst) if self.algorithm.has_burst() => u64::from(burst),
            _ => self.requests_per_unit,
        }
    }

    /// `true` if answers can announce the limit.
    pub fn is_announced(&self) -> bool {
        self.on_over == OnOver::Announce || self.near.is_some()
    }

    /// `false` for an unlimited limit without `count`.
    pub fn is_counted(&self) -> bool {
        !self.unlimited || self.count
    }

    /// `true` for a fixed window of one month without a calendar: 30 days, aligned to the epoch.
    pub fn is_epoch_month(&self) -> bool {
        let is_window = self.algorithm == Algorithm::FixedWindow && self.is_counted();
        is_window && self.calendar.is_none() && self.period == Period::one(Unit::Month)
    }

    /// The limit for a tier, without tiers of its own.
    pub fn of_tier(&self, tier: Tier) -> Self {
        let mut spec = self.without_tiers();
        match tier {
            Tier::Unlimited => (spec.unlimited, spec.requests_per_unit) = (true, 0),
            Tier::Limited { requests_per_unit, burst } => {
                spec.burst = burst.or_else(|| self.scaled_burst(requests_per_unit));
                spec.requests_per_unit = self.at_least_reserved(requests_per_unit);
            }
        }
        spec
    }

    /// Copies the limit without its tiers, which can be many.
    pub(super) fn without_tiers(&self) -> Self {
        Self {
            calendar: self.calendar.clone(),
            penalty: self.penalty.clone(),
            feedback: self.feedback.clone(),
            unit_name: self.unit_name.clone(),
            name: self.name.clone(),
            replaces: self.replaces.clone(),
            tiers: BTreeMap::new(),
            ..*self
        }
    }

    /// The burst scaled to another value: rounded up, at least 1. `None` stays `None`: the burst then follows the
    /// value.
    pub(super) fn scaled_burst(&self, number: u64) -> Option<u32> {
        let (burst, from) = (self.burst?, self.requests_per_unit);
        if from == 0 {
            return Some(burst);
        }
        let scaled = (u128::from(burst) * u128::from(number)).div_ceil(u128::from(from));
        Some(u32::try_from(scaled).unwrap_or(u32::MAX).max(1))
    }

    /// Returns why the limit's units are never borrowed, whatever its `lease`; `None` if they may be.
    pub fn lease_obstacle(&self) -> Option<LeaseObstacle> {
        if self.algorithm == Algorithm::SlidingLog {
            return Some(LeaseObstacle::Log);
        }
        if self.algorithm == Algorithm::Concurrency {
            return Some(LeaseObstacle::Slots);
        }
        if self.algorithm == Algorithm::LeakyBucket && self.pacing == Pacing::Queue {
            return Some(LeaseObstacle::Queue);
        }
        if self.algorithm.has_burst() && (self.settle || self.reserve.is_some()) {
            return Some(LeaseObstacle::Returns);
        }
        if self.algorithm == Algorithm::SlidingWindow && self.settle {
            return Some(LeaseObstacle::SlidingReceipt);
        }
        self.penalty.as_ref().map(|_| LeaseObstacle::Penalty)
    }

    /// `true` if requests may use units that their process borrowed.
    pub fn is_leased(&self) -> bool {
        self.lease == Lease::Auto && self.lease_obstacle().is_none()
    }

    /// `true` if a settle returns unused units to the counter. A queue keeps them, because later hits waited for them.
    /// A leased bucket keeps them, because the units of other instances would end at other times.
    pub(crate) fn gives_back(&self) -> bool {
        self.pacing != Pacing::Queue && !(self.is_leased() && self.algorithm.has_burst())
    }

    /// Checks that the other options work with `algorithm: concurrency`.
    ///
    /// # Errors
    /// [`LimitError`] if it cannot.
    pub(super) fn check_concurrency(&self) -> Result<(), LimitError> {
        if self.algorithm != Algorithm::Concurrency || self.unlimited {
            return Ok(());
        }
        let refused = [
            // Before `charging`, which it implies.
            ("on_over", self.on_over == OnOver::Announce, "an admitted request needs a slot"),
            ("charging", self.charging == Charging::Postpaid, "a denied request takes no slot"),
            ("on_store_failure", self.on_store_failure == FailurePolicy::Local, NO_LOCAL_SLOTS),
            ("reserve", self.reserve.is_some(), "a slot is not a number of units"),
            ("ledger", self.ledger, "a slot is not a number of units"),
            ("notify", !self.notify.is_empty(), "slots are used and free from one moment to the next"),
            ("penalty", self.penalty.is_some(), "a full limit says nothing about the value that is denied"),
        ];
        if let Some((option, _, reason)) = refused.into_iter().find(|(_, is_used, _)| *is_used) {
            return Err(LimitError::Concurrency { option, reason });
        }
        if self.period.us() > MAX_HOLD_US {
            return Err(LimitError::LongHold { hold: self.period });
        }
        Ok(())
    }

    /// Checks that the limit can have its `reserve`.
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

    /// Raises the value of a tier or exception to at least the reserved units. Every check then takes the same units,
    /// and a charge returns at most what its check took, whatever the value was in between. A smaller value would admit
    /// no more: one check exhausts it. Buckets need no raise: their burst covers the reserve, and their rate stays as
    /// given. 0 still blocks.
    pub(crate) fn at_least_reserved(&self, number: u64) -> u64 {
        match self.reserve {
            Some(reserve) if number > 0 && !self.algorithm.has_burst() => number.max(reserve),
            _ => number,
        }
    }
}
