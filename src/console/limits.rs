//! Decisions of each limit in the last 15 minutes. Limits with equal labels are merged.

use std::collections::HashMap;
use std::sync::Arc;

use super::steps::Steps;
use crate::telemetry::metrics::{LimitReading, LimitRef, LimitsInForce};

/// Longest pause without denials within one series of denials.
const LONGEST_PAUSE_S: u64 = 30;

#[derive(Debug, Default)]
pub(super) struct LimitHistories {
    limits: HashMap<LimitRef, LimitHistory>,
}

/// Domain and label of limits.
pub(super) type LimitName = (Arc<str>, Arc<str>);

#[derive(Debug)]
pub(super) struct LimitHistory {
    pub(super) name: LimitName,
    /// Total at the last sample.
    asked_before: u64,
    over_before: u64,
    shadow_before: u64,
    pub(super) asked: Steps,
    pub(super) over: Steps,
    /// Start of the current series of denials, seconds since the epoch.
    pub(super) since: Option<u64>,
    /// The last second with denials, and the last one in which the rules had the limit.
    last_over: u64,
    seen: u64,
    has_changed: bool,
}

impl LimitHistories {
    /// Adds a second, which ended at `end`. Returns how many of its decisions were over a limit but not denied.
    pub(super) fn add(&mut self, limits: &LimitsInForce, second: u64, end: u64) -> u64 {
        let mut shadow = 0;
        for reading in limits.readings() {
            if let Some(history) = self.limits.get_mut(&reading.limit) {
                shadow += history.add(&reading, second, end);
            } else if reading.asked > 0 {
                let mut history = LimitHistory::new(&reading);
                shadow += history.add(&reading, second, end);
                self.limits.insert(reading.limit, history);
            }
        }
        self.limits.retain(|_, history| history.seen == second);
        shadow
    }

    pub(super) fn get(&self, limit: &LimitRef) -> Option<&LimitHistory> {
        self.limits.get(limit)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&LimitRef, &LimitHistory)> {
        self.limits.iter()
    }

    /// Limits whose counts changed in the last second.
    pub(super) fn changed(&self) -> impl Iterator<Item = &LimitHistory> {
        self.limits.values().filter(|history| history.has_changed)
    }
}

impl LimitHistory {
    fn new(reading: &LimitReading<'_>) -> Self {
        Self {
            name: (Arc::clone(reading.domain), Arc::clone(reading.rule)),
            asked_before: 0,
            over_before: 0,
            shadow_before: 0,
            asked: Steps::default(),
            over: Steps::default(),
            since: None,
            last_over: 0,
            seen: 0,
            has_changed: true,
        }
    }

    fn add(&mut self, reading: &LimitReading<'_>, second: u64, end: u64) -> u64 {
        let over = reading.over.saturating_sub(self.over_before);
        let shadow = reading.shadow.saturating_sub(self.shadow_before);
        // A rate above 0 changes each second, if only because time passes.
        let was_asked = self.asked.newest_steps(2) > 0;
        self.asked.add(second, reading.asked.saturating_sub(self.asked_before));
        self.over.add(second, over);
        self.has_changed = was_asked || self.asked.newest_steps(2) > 0;
        if over > 0 {
            if self.since.is_none() {
                self.since = Some(end - 1);
            }
            self.last_over = second;
        } else if second - self.last_over > LONGEST_PAUSE_S {
            self.since = None;
        }
        self.seen = second;
        (self.asked_before, self.over_before, self.shadow_before) =
            (reading.asked, reading.over, reading.shadow);
        shadow
    }
}
