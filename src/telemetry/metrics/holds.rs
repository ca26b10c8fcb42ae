//! Metrics of holds.

use prometheus::{Registry, Result};
use strum::{IntoStaticStr, VariantArray};

use super::family::{CountersBy, counters};

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReserveResult {
    Ok,
    OverLimit,
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CommitResult {
    /// The real cost is booked.
    Settled,
    /// An earlier call committed the hold.
    Already,
    /// The hold has ended, and the estimate stays.
    Expired,
    /// The store did not answer after the mark. The estimate stays, unless the store settled nevertheless.
    Lost,
    Error,
}

impl CommitResult {
    /// The name in answers and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug)]
pub(crate) struct HoldMeter {
    pub(crate) reserved: CountersBy<ReserveResult>,
    pub(crate) committed: CountersBy<CommitResult>,
}

impl HoldMeter {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let help = "Reservations and commits of holds, by result";
        let family = counters(registry, "ratelimitd_holds_total", help, &["op", "result"])?;
        Ok(Self {
            reserved: CountersBy::new(&family, &["reserve"]),
            committed: CountersBy::new(&family, &["commit"]),
        })
    }
}
