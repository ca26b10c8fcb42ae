//! Results of notices.

use std::sync::Arc;

use prometheus::{Registry, Result};

use super::family::{ReadFamily, add_series, register_read};
use crate::notify::NotifyStats;

const NOTIFICATIONS: ReadFamily = ReadFamily::counter(
    "ratelimitd_notifications_total",
    "Shares of limits that notify found, by what became of them: sent, known, failed or dropped",
);

pub(super) fn watch_notices(registry: &Registry, stats: &Arc<NotifyStats>) -> Result<()> {
    let stats = Arc::clone(stats);
    register_read(registry, &[NOTIFICATIONS], move || {
        let mut family = NOTIFICATIONS.empty();
        stats.results().iter().for_each(|(name, count)| add_series(&mut family, &[("result", name)], *count));
        vec![family]
    })
}
