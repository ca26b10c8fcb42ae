//! How full the counters of limits with `notify` are.

use super::Decision;
use crate::request::plan::ChargedLimit;
use crate::request::plan::charge::{CounterSnapshot, DecidedBy, Outcome};

/// How full a counter is, if a share of `notify` is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Units used, also those above the limit.
    pub used: u64,
    /// Units of a full counter.
    pub of: u64,
    /// When the store decided, in microseconds since the epoch.
    pub now_us: u64,
    /// Start and end of a fixed window, in microseconds since the epoch; `None` for other algorithms.
    pub window_us: Option<(u64, u64)>,
}

impl Decision {
    /// Returns how full a charge's counter is after the decision, if it reaches the smallest share of `notify`. `None`
    /// in shadow mode, for a limit of 0, and if the store did not decide. `outcome` is the charge's.
    pub fn level(&self, charged: &ChargedLimit<'_>, outcome: &Outcome) -> Option<Level> {
        let (limit, report) = (charged.limit, outcome.report);
        let of = limit.spec.capacity();
        let used = of.saturating_sub(report.remaining).saturating_add(report.over_by);
        // First, because most counters are below it.
        if !limit.spec.notify.iter().next()?.is_reached(used, of) {
            return None;
        }
        let (DecidedBy::Store(CounterSnapshot { now_us, reading })
        | DecidedBy::Lease(CounterSnapshot { now_us, reading })) = &outcome.decided_by
        else {
            return None;
        };
        let kernel = &self.plan.charges.charge(charged.index).kernel;
        let is_told = !limit.shadow && kernel.has_counter();
        is_told.then(|| Level { used, of, now_us: *now_us, window_us: kernel.window_us(reading) })
    }
}
