//! GCRA by virtual scheduling (ITU-T I.371): the only state is a theoretical arrival time (TAT). Continuous token
//! buckets and leaky buckets are the same rule under other parameter names.
//!
//! The emission interval T = period / limit and the TAT are exact fractions, so rounding never makes them drift. Every
//! closed interval of length d admits at most `burst + floor(d * limit / period)` units.

use strum::{EnumString, IntoStaticStr, VariantNames};

use super::attempt::{Attempt, CounterView, Grant, Report, Verdict, max_recorded};
use super::undo::Undo;

/// Longest time in which an empty bucket may fill: 10 years of 365 days, below 2^49 us.
pub const LONGEST_REFILL_US: u64 = 10 * 365 * 86_400 * 1_000_000;

/// How a leaky bucket treats a hit that has to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Pacing {
    /// A meter: the hit fits or it does not.
    #[default]
    Meter,
    /// A queue: the hit fits, and the answer says how long it must wait.
    Queue,
}

/// `limit` units per `period_us`; an unused counter admits `burst` units at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    /// 1 to 2^32 - 1 units.
    pub limit: u64,
    /// 1 us to 366 days.
    pub period_us: u64,
    /// Units that an unused counter admits at one instant, 1 to 2^32 - 1.
    pub burst: u64,
    pub(super) pacing: Pacing,
    /// The emission interval is `numerator / denominator` microseconds, reduced.
    numerator: u64,
    /// Also the denominator of every [`Tat::fraction`], 1 to 2^32 - 1.
    pub denominator: u64,
}

/// Theoretical arrival time: `whole_us + fraction / denominator` microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tat {
    pub whole_us: u64,
    /// Numerator, below the denominator of the kernel that wrote it. A kernel with another denominator misreads it by
    /// less than a microsecond.
    pub fraction: u64,
}

impl Tat {
    pub(super) fn unused_from_us(self) -> u64 {
        self.whole_us + u64::from(self.fraction > 0)
    }
}

impl Gcra {
    /// An empty bucket must fill within [`LONGEST_REFILL_US`].
    pub fn new(limit: u64, period_us: u64, burst: u64, pacing: Pacing) -> Self {
        let divisor = greatest_common_divisor(period_us, limit);
        let (numerator, denominator) = (period_us / divisor, limit / divisor);
        Self { limit, period_us, burst, pacing, numerator, denominator }
    }

    /// Returns the time in which `units` drain. Caps `units` at the most that a counter records.
    pub fn drain(&self, units: u64) -> Tat {
        let units = units.min(max_recorded(self.burst));
        let ticks = u128::from(units) * u128::from(self.numerator);
        let denominator = u128::from(self.denominator);
        // At most 20 years in microseconds.
        let narrow = |ticks: u128| u64::try_from(ticks).expect("the refill time is at most ten years");
        Tat { whole_us: narrow(ticks / denominator), fraction: narrow(ticks % denominator) }
    }

    /// Reads a stored TAT. A fraction that is not below this denominator counts as the next whole microsecond.
    pub(super) fn load(&self, stored: Option<Tat>) -> Tat {
        match stored.unwrap_or_default() {
            Tat { whole_us, fraction } if fraction >= self.denominator => {
                Tat { whole_us: whole_us + 1, fraction: 0 }
            }
            tat => tat,
        }
    }

    fn plus(&self, a: Tat, b: Tat) -> Tat {
        let fraction = a.fraction + b.fraction;
        let carry = u64::from(fraction >= self.denominator);
        Tat { whole_us: a.whole_us + b.whole_us + carry, fraction: fraction - carry * self.denominator }
    }

    /// `a - b`; `None` if negative.
    pub(super) fn minus(&self, a: Tat, b: Tat) -> Option<Tat> {
        if a < b {
            return None;
        }
        let borrow = u64::from(a.fraction < b.fraction);
        let fraction = a.fraction + borrow * self.denominator - b.fraction;
        Some(Tat { whole_us: a.whole_us - b.whole_us - borrow, fraction })
    }

    /// Returns the TAT that preceded a grant of `units`, or the time of the grant if that was later, in microseconds
    /// rounded down. `after` is the TAT after the grant. Until this time the bucket would not be full even without the
    /// grant.
    pub fn grant_base_us(&self, after: Tat, units: u64) -> u64 {
        self.minus(after, self.drain(units)).map_or(0, |base| base.whole_us)
    }

    pub(super) fn fits(&self, tat: Tat, now_us: u64, needed: u64) -> bool {
        let now = tat_at(now_us);
        let after = self.plus(tat.max(now), self.drain(needed));
        needed <= self.burst && after <= self.plus(now, self.drain(self.burst))
    }

    pub(super) fn record(&self, tat: Tat, attempt: Attempt) -> Tat {
        let now = tat_at(attempt.now_us);
        if attempt.cost.is_refund() {
            return self.minus(tat, self.drain(attempt.cost.refunded())).map_or(now, |tat| tat.max(now));
        }
        let base = tat.max(now);
        let after = self.plus(base, self.drain(attempt.cost.units().unsigned_abs()));
        let latest = self.plus(now, self.drain(max_recorded(self.burst)));
        after.min(latest).max(base)
    }

    pub(super) fn report(&self, tat: Tat, attempt: Attempt, verdict: Verdict) -> Report {
        // In ticks of 1/denominator microseconds: the time in which units drain, and until the backlog has drained.
        let ticks = |units: u64| u128::from(units) * u128::from(self.numerator);
        let backlog = self.ticks_after(tat, attempt.now_us);
        let rounded_up_us =
            |ticks: u128| u64::try_from(ticks.div_ceil(u128::from(self.denominator))).unwrap_or(u64::MAX);
        let free = ticks(self.burst).saturating_sub(backlog) / u128::from(self.numerator);
        let view = CounterView {
            max_cost: self.burst,
            remaining: u64::try_from(free).unwrap_or(self.burst),
            reset_after_us: rounded_up_us(backlog),
            wait_us: |units| rounded_up_us(backlog.saturating_sub(ticks(self.burst - units))),
            longest_wait_us: || rounded_up_us(ticks(self.burst)),
        };
        let mut report = view.report(attempt.cost, verdict);
        if self.pacing == Pacing::Queue && verdict == Verdict::Fits {
            // The hit waits until the backlog ahead of it has drained.
            report.delay_us = rounded_up_us(backlog.saturating_sub(ticks(attempt.cost.taken())));
        }
        report
    }

    /// Returns the undrained units, rounded up.
    pub(super) fn used(&self, tat: Tat, now_us: u64) -> u64 {
        u64::try_from(self.ticks_after(tat, now_us).div_ceil(u128::from(self.numerator))).unwrap_or(u64::MAX)
    }

    /// Returns how many whole units lie between `now_us` and `tat`: at most this many
    /// places of a grant that ended at `tat` are still open. 0 for a queue, because its units wait for their turn.
    pub(super) fn places_after(&self, tat: Tat, now_us: u64) -> u64 {
        if self.pacing == Pacing::Queue {
            return 0;
        }
        u64::try_from(self.ticks_after(tat, now_us) / u128::from(self.numerator)).unwrap_or(u64::MAX)
    }

    /// Time from `now_us` to `tat` in ticks of 1/denominator microseconds; 0 if `tat` has passed.
    fn ticks_after(&self, tat: Tat, now_us: u64) -> u128 {
        match tat.whole_us.checked_sub(now_us) {
            Some(whole_us) => u128::from(whole_us) * u128::from(self.denominator) + u128::from(tat.fraction),
            None => 0,
        }
    }

    pub(super) fn undone(&self, tat: Tat, undo: Undo) -> Tat {
        let drain = self.undone_drain(undo);
        if drain == Tat::default() {
            return tat;
        }
        let now = Tat { whole_us: undo.now_us, fraction: 0 };
        self.minus(tat, drain).map_or(now, |tat| tat.max(now))
    }

    /// Returns the time in which `units` of this grant drain, at the rate of the limit that granted them. This is what
    /// the grant added to the TAT, in units of this kernel's denominator, rounded down.
    pub fn drain_of_grant(&self, units: u64, grant: Grant) -> Tat {
        let limit = u128::from(grant.limit.map_or(self.limit, |limit| u64::from(limit.get())));
        let ticks = u128::from(units) * u128::from(self.period_us);
        // A counter never records more than twice the longest refill, so the cap loses nothing.
        let whole_us = u64::try_from(ticks / limit).unwrap_or(u64::MAX).min(2 * LONGEST_REFILL_US);
        let fraction = ticks % limit * u128::from(self.denominator) / limit;
        Tat { whole_us, fraction: u64::try_from(fraction).expect("below the denominator") }
    }

    /// Returns the time that an undo subtracts: the drain time of its units, minus the time since the grant. 0 if all
    /// of them have drained.
    pub(super) fn undone_drain(&self, undo: Undo) -> Tat {
        let drain = self.drain_of_grant(undo.units, undo.grant);
        let whole_us = drain.whole_us.checked_sub(undo.passed_us());
        whole_us.map_or(Tat::default(), |whole_us| Tat { whole_us, ..drain })
    }
}

fn tat_at(now_us: u64) -> Tat {
    Tat { whole_us: now_us, fraction: 0 }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
