//! What the usage ledger books for a charge.

use std::ops::AddAssign;

use strum::IntoStaticStr;

use super::{Code, Decision};
use crate::limit::Limit;
use crate::limit::algorithm::Verdict;
use crate::limit::announce::OnOver;
use crate::request::plan::ChargedLimit;
use crate::request::plan::charge::{Charge, DecidedBy, Outcome, Role};
use crate::request::plan::reserve::ReserveKind;
use crate::request::plan::settle::SettleResult;

/// Sums of requests and units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Booking {
    /// Admitted requests with a charge that fits. Neither a peek nor a settle is one, nor is the charge after a check
    /// of `reserve`.
    pub ok: u64,
    /// Charges over the limit.
    pub over: u64,
    /// Units that the store recorded.
    pub units: u64,
    /// Units that the store took back.
    pub back: u64,
    /// Units of charges that were over the limit and not recorded.
    pub refused: u64,
    /// Units that a failure policy admitted, whether the store recorded them or not.
    pub policy: u64,
    /// Units of failed requests and lost settles, and units returned while a failure policy decided. Whether the store
    /// recorded them or their return is unknown.
    pub unknown: u64,
}

/// What a charge adds to a [`Booking`]: a request or none, and units of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookedCharge {
    /// Adds 1 to [`Booking::ok`].
    pub ok: bool,
    /// Adds 1 to [`Booking::over`].
    pub over: bool,
    pub units: u64,
    pub kind: BookedUnits,
}

/// The number of a [`Booking`] that units add to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BookedUnits {
    #[default]
    Recorded,
    Back,
    Refused,
    Policy,
    Unknown,
}

/// Whether a booked limit can deny. The name in the ledger is empty for a limit that denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum BookingMode {
    #[default]
    #[strum(serialize = "")]
    Enforced,
    /// The rule is in shadow mode.
    Shadow,
    /// `on_over: announce`.
    Soft,
}

impl Booking {
    /// Requests and units together. Wraps around.
    pub fn total(&self) -> u64 {
        let Self { ok, over, units, back, refused, policy, unknown } = *self;
        [over, units, back, refused, policy, unknown].into_iter().fold(ok, u64::wrapping_add)
    }
}

impl BookedCharge {
    /// Books a charge whose request failed.
    pub fn of_failure(charge: &Charge) -> Self {
        let units = if charge.kernel.has_counter() { charge.cost.units().unsigned_abs() } else { 0 };
        Self { units, kind: BookedUnits::Unknown, ..Self::default() }
    }

    /// Requests and units together.
    pub fn total(&self) -> u64 {
        u64::from(self.ok) + u64::from(self.over) + self.units
    }
}

/// Units saturate at 2^64 - 1. The counts of requests cannot reach it.
impl AddAssign<BookedCharge> for Booking {
    fn add_assign(&mut self, charge: BookedCharge) {
        self.ok += u64::from(charge.ok);
        self.over += u64::from(charge.over);
        let sum = match charge.kind {
            BookedUnits::Recorded => &mut self.units,
            BookedUnits::Back => &mut self.back,
            BookedUnits::Refused => &mut self.refused,
            BookedUnits::Policy => &mut self.policy,
            BookedUnits::Unknown => &mut self.unknown,
        };
        *sum = sum.saturating_add(charge.units);
    }
}

/// Saturates.
impl AddAssign for Booking {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, units: u64| *sum = sum.saturating_add(units);
        add(&mut self.ok, other.ok);
        add(&mut self.over, other.over);
        add(&mut self.units, other.units);
        add(&mut self.back, other.back);
        add(&mut self.refused, other.refused);
        add(&mut self.policy, other.policy);
        add(&mut self.unknown, other.unknown);
    }
}

impl BookingMode {
    pub fn of(limit: &Limit) -> Self {
        match limit.spec.on_over {
            _ if limit.blocked => Self::Enforced,
            _ if limit.shadow => Self::Shadow,
            OnOver::Announce => Self::Soft,
            OnOver::Deny => Self::Enforced,
        }
    }
}

impl Decision {
    /// Returns what the ledger books for a charge with this outcome, and the time by the store's clock in microseconds
    /// since the epoch; `None` if the store did not decide.
    pub fn booking(&self, charged: &ChargedLimit<'_>, outcome: &Outcome) -> (BookedCharge, Option<u64>) {
        let charge = self.plan.charges.charge(charged.index);
        let is_denied = self.shadowed || self.overall == Code::OverLimit;
        let at_us = outcome.decided_by.snapshot().map(|snapshot| snapshot.now_us);
        let booking = if let Some(settle) = self.settle(charged.index) {
            of_settle(charge, settle.result)
        } else if outcome.verdict == Verdict::Over {
            of_denial(charge, outcome.decided_by, is_denied)
        } else {
            let is_request = !is_denied && charged.reserve != Some(ReserveKind::Charge);
            of_fitting(charge, outcome.decided_by, is_denied, is_request)
        };
        (booking, at_us)
    }
}

fn of_settle(charge: &Charge, result: SettleResult) -> BookedCharge {
    let (units, kind) = match result {
        _ if !charge.kernel.has_counter() => return BookedCharge::default(),
        SettleResult::Charged | SettleResult::Unreadable => (charge.cost.taken(), BookedUnits::Recorded),
        SettleResult::Returned => (charge.cost.refunded(), BookedUnits::Back),
        SettleResult::Kept => return BookedCharge::default(),
        SettleResult::Lost => return BookedCharge::of_failure(charge),
    };
    BookedCharge { units, kind, ..BookedCharge::default() }
}

/// The deny cache records nothing. Units that a store records late stay refused.
fn of_denial(charge: &Charge, decided_by: DecidedBy, is_denied: bool) -> BookedCharge {
    let units = charge.cost.taken();
    // The request of a booked charge was counted at its check.
    let over = units > 0 && charge.role != Role::Booked;
    let is_recorded = matches!(decided_by, DecidedBy::Store(_))
        && charge.kernel.has_counter()
        && charge.is_recorded(Verdict::Over, is_denied);
    let kind = if is_recorded { BookedUnits::Recorded } else { BookedUnits::Refused };
    BookedCharge { ok: false, over, units, kind }
}

fn of_fitting(charge: &Charge, decided_by: DecidedBy, is_denied: bool, is_request: bool) -> BookedCharge {
    if !charge.kernel.has_counter() || !charge.is_recorded(Verdict::Fits, is_denied) {
        return BookedCharge::default();
    }
    let units = charge.cost.units();
    let kind = match decided_by {
        DecidedBy::Policy(_) if units < 0 => BookedUnits::Unknown,
        DecidedBy::Policy(_) => BookedUnits::Policy,
        _ if units < 0 => BookedUnits::Back,
        DecidedBy::Store(_) | DecidedBy::DenyCache(_) | DecidedBy::Lease(_) => BookedUnits::Recorded,
    };
    let ok = is_request && units > 0 && kind == BookedUnits::Recorded;
    BookedCharge { ok, over: false, units: units.unsigned_abs(), kind }
}
