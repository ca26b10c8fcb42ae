//! How far the usage ledger is written.

use std::sync::Arc;

use prometheus::{Registry, Result};

use super::family::{ReadFamily, Reading};
use crate::ledger::Ledger;

const READINGS: [Reading<Ledger>; 4] = [
    (
        ReadFamily::gauge(
            "ratelimitd_ledger_difference",
            "Units booked that are neither in a written line nor waiting for one, or the reverse: must be 0",
        ),
        |ledger| ledger.stats().difference,
    ),
    (ReadFamily::counter("ratelimitd_ledger_lines_total", "Lines written to the usage ledger"), |ledger| {
        ledger.stats().lines
    }),
    (
        ReadFamily::counter(
            "ratelimitd_ledger_unattributed_units_total",
            "Units in lines without a key, because an interval had more than ledger.max_keys",
        ),
        |ledger| ledger.stats().unattributed_units,
    ),
    (
        ReadFamily::gauge(
            "ratelimitd_ledger_oldest_unwritten_seconds",
            "Seconds since everything booked was in the usage ledger",
        ),
        Ledger::oldest_unwritten_s,
    ),
];

pub(super) fn watch_ledger(registry: &Registry, ledger: &Arc<Ledger>) -> Result<()> {
    READINGS.into_iter().try_for_each(|(family, value)| {
        let ledger = Arc::clone(ledger);
        family.register(registry, &[], move || value(&ledger))
    })
}
