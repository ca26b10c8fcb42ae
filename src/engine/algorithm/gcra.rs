//! GCRA by virtual scheduling (ITU-T I.371): one theoretical arrival time says everything. The continuous token
//! bucket and the leaky bucket are the same rule with other names for its parameters.
//!
//! The emission interval T = period / limit is kept as an exact fraction, and so is the arrival time: whole
//! microseconds and a numerator over the fraction's denominator. Nothing is ever rounded, so nothing drifts.
//! Every closed interval of length d admits at most `burst + floor(d * limit / period)` units.

use super::{Attempt, Reading, Report, Verdict, owing_at_most, report};
use crate::engine::Pacing;

/// `limit` units per `period_us`, `burst` units at once on an idle key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    /// Units per period, 1 to 2^32 - 1.
    pub limit: u64,
    /// The period in microseconds, 1 to 366 days.
    pub period_us: u64,
    /// Units an idle key may take at one instant, 1 to 2^32 - 1.
    pub burst: u64,
    /// Whether an admitted hit is told to wait for its turn.
    pub pacing: Pacing,
    /// The emission interval is `numerator / denominator` microseconds, reduced.
    pub numerator: u64,
    /// See `numerator`; 1 to 2^32 - 1.
    pub denominator: u64,
}

/// Theoretical arrival time: `whole_us + fraction / denominator` microseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tat {
    /// Whole microseconds.
    pub whole_us: u64,
    /// Numerator of the rest, below the kernel's denominator.
    pub fraction: u64,
}

impl Tat {
    pub(super) fn fresh_at_us(self) -> u64 {
        self.whole_us + u64::from(self.fraction > 0)
    }
}

impl Gcra {
    pub(crate) fn new(limit: u64, period_us: u64, burst: u64, pacing: Pacing) -> Self {
        let divisor = greatest_common_divisor(period_us, limit);
        let (numerator, denominator) = (period_us / divisor, limit / divisor);
        Self { limit, period_us, burst, pacing, numerator, denominator }
    }

    /// The time that `units` take to drain. Units beyond what the key can hold or owe count as just that many.
    #[must_use]
    pub fn drain(&self, units: u64) -> Tat {
        let units = units.min(owing_at_most(self.burst));
        let ticks = u128::from(units) * u128::from(self.numerator);
        let denominator = u128::from(self.denominator);
        // At most twice ten years of microseconds, so the parts fit.
        let part = |ticks: u128| u64::try_from(ticks).expect("the refill horizon is bounded by ten years");
        Tat { whole_us: part(ticks / denominator), fraction: part(ticks % denominator) }
    }

    fn plus(&self, a: Tat, b: Tat) -> Tat {
        let fraction = a.fraction + b.fraction;
        let carry = u64::from(fraction >= self.denominator);
        Tat { whole_us: a.whole_us + b.whole_us + carry, fraction: fraction - carry * self.denominator }
    }

    /// `a - b`, or `None` when that is negative.
    fn minus(&self, a: Tat, b: Tat) -> Option<Tat> {
        if a < b {
            return None;
        }
        let borrow = u64::from(a.fraction < b.fraction);
        let fraction = a.fraction + borrow * self.denominator - b.fraction;
        Some(Tat { whole_us: a.whole_us - b.whole_us - borrow, fraction })
    }

    pub(super) fn fits(&self, tat: Tat, now_us: u64, needed: u64) -> bool {
        let now = at(now_us);
        let after = self.plus(tat.max(now), self.drain(needed));
        needed <= self.burst && after <= self.plus(now, self.drain(self.burst))
    }

    pub(super) fn record(&self, tat: Tat, ask: Attempt) -> Tat {
        let now = at(ask.now_us);
        if ask.cost.is_refund() {
            return self.minus(tat, self.drain(ask.cost.refunded())).map_or(now, |tat| tat.max(now));
        }
        let base = tat.max(now);
        let after = self.plus(base, self.drain(ask.cost.units().unsigned_abs()));
        let deepest = self.plus(now, self.drain(owing_at_most(self.burst)));
        after.min(deepest).max(base)
    }

    pub(super) fn report(&self, tat: Tat, ask: Attempt, verdict: Verdict) -> Report {
        let at = At { kernel: *self, backlog: self.ticks_after(tat, ask.now_us) };
        let mut report = report(&at, ask.cost, verdict);
        if self.pacing == Pacing::Queue && verdict == Verdict::Fits {
            // The hit's turn comes when what was there before it has drained.
            let own = u128::from(ask.cost.taken()) * u128::from(self.numerator);
            report.delay_us = at.whole_us(at.backlog.saturating_sub(own));
        }
        report
    }

    /// How far `tat` lies after `now_us`, in ticks of 1/denominator microseconds.
    fn ticks_after(&self, tat: Tat, now_us: u64) -> u128 {
        match tat.whole_us.checked_sub(now_us) {
            Some(whole_us) => u128::from(whole_us) * u128::from(self.denominator) + u128::from(tat.fraction),
            None => 0,
        }
    }
}

fn at(now_us: u64) -> Tat {
    Tat { whole_us: now_us, fraction: 0 }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

struct At {
    kernel: Gcra,
    /// What has still to drain, in ticks of 1/denominator microseconds.
    backlog: u128,
}

impl At {
    /// Ticks as microseconds, rounded up.
    fn whole_us(&self, ticks: u128) -> u64 {
        u64::try_from(ticks.div_ceil(u128::from(self.kernel.denominator))).unwrap_or(u64::MAX)
    }
}

impl Reading for At {
    fn max_cost(&self) -> u64 {
        self.kernel.burst
    }

    fn remaining(&self) -> u64 {
        let numerator = u128::from(self.kernel.numerator);
        let free = (u128::from(self.kernel.burst) * numerator).saturating_sub(self.backlog) / numerator;
        u64::try_from(free).unwrap_or(self.kernel.burst)
    }

    fn wait_us(&self, units: u64) -> u64 {
        let room = u128::from(self.kernel.burst - units) * u128::from(self.kernel.numerator);
        self.whole_us(self.backlog.saturating_sub(room))
    }

    fn reset_after_us(&self) -> u64 {
        self.whole_us(self.backlog)
    }
}
