//! Sliding-window log: every grant with its time. Exactly at most `limit` units in every window `(t - W, t]`.
//!
//! Entries carry a running total, so sums over a span are one subtraction and every search is by bisection.

use std::collections::VecDeque;

use super::{Attempt, Reading, Report, Verdict, owing_at_most, report};

/// `limit` units per sliding window of `window_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// Units per window, 0 to [`MAX_LOG_LIMIT`](super::MAX_LOG_LIMIT).
    pub limit: u64,
    /// Length in microseconds, 1 to 366 days.
    pub window_us: u64,
}

/// A grant: when, and the running total up to and including it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    at_us: u64,
    total: u64,
}

/// The grants of one key, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The running total before the oldest grant.
    base: u64,
    grants: VecDeque<Grant>,
}

/// The few numbers of a log that a report needs. Times are microseconds since the epoch, 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// Units in the window.
    pub used: u64,
    /// The newest grant.
    pub newest_us: u64,
    /// The grant whose expiry makes room for one unit more than there is.
    pub next_us: u64,
    /// The grant whose expiry makes room for the cost asked.
    pub retry_us: u64,
}

impl Log {
    /// Grants that there is room for: what it takes of memory beside its key.
    pub(super) fn room(&self) -> usize {
        self.grants.capacity()
    }

    fn newest_us(&self) -> u64 {
        self.grants.back().map_or(0, |grant| grant.at_us)
    }

    fn total(&self) -> u64 {
        self.grants.back().map_or(self.base, |grant| grant.total)
    }

    /// The total before the grant at that place.
    fn total_before(&self, place: usize) -> u64 {
        if place == 0 { self.base } else { self.grants[place - 1].total }
    }

    /// Forgets the grants before that place.
    fn prune(&mut self, place: usize) {
        self.base = self.total_before(place);
        self.grants.drain(..place);
    }

    fn append(&mut self, at_us: u64, units: u64) {
        let total = self.total() + units;
        match self.grants.back_mut() {
            Some(newest) if newest.at_us == at_us => newest.total = total,
            _ => self.grants.push_back(Grant { at_us, total }),
        }
    }

    /// Takes units back, the newest first.
    fn undo(&mut self, units: u64) {
        let total = self.total().saturating_sub(units).max(self.base);
        let kept = self.grants.partition_point(|grant| grant.total < total);
        // The grant at `kept` reaches the total: it stays, shortened; without one nothing is left to undo.
        let keep = if total == self.base { 0 } else { kept + 1 };
        self.grants.truncate(keep);
        if let Some(newest) = self.grants.back_mut() {
            newest.total = total;
        }
    }
}

impl SlidingLog {
    pub(crate) fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    /// Place of the first grant still in the window, as seen from the later of now and the newest grant.
    fn first_live(&self, log: &Log, now_us: u64) -> usize {
        let seen_from_us = now_us.max(log.newest_us());
        log.grants.partition_point(|grant| grant.at_us + self.window_us <= seen_from_us)
    }

    fn used(&self, log: &Log, now_us: u64) -> u64 {
        log.total() - log.total_before(self.first_live(log, now_us))
    }

    pub(super) fn fits(&self, log: Option<&Log>, now_us: u64, needed: u64) -> bool {
        log.map_or(0, |log| self.used(log, now_us)) + needed <= self.limit
    }

    pub(super) fn record(&self, mut log: Log, ask: Attempt) -> Log {
        let at_us = ask.now_us.max(log.newest_us());
        log.prune(self.first_live(&log, ask.now_us));
        if ask.cost.is_refund() {
            log.undo(ask.cost.refunded());
            return log;
        }
        let room = owing_at_most(self.limit).saturating_sub(log.total() - log.base);
        let units = ask.cost.units().unsigned_abs().min(room);
        if units > 0 {
            log.append(at_us, units);
        }
        log
    }

    pub(super) fn facts(&self, log: Option<&Log>, ask: Attempt) -> LogFacts {
        let Some(log) = log else {
            return LogFacts::default();
        };
        let first = self.first_live(log, ask.now_us);
        let used = log.total() - log.total_before(first);
        if used == 0 {
            return LogFacts::default();
        }
        let frees_us = |units: u64| {
            let must_reach = (log.total() + units).saturating_sub(self.limit);
            let place = log.grants.partition_point(|grant| grant.total < must_reach).max(first);
            log.grants.get(place).map_or(0, |grant| grant.at_us)
        };
        LogFacts {
            used,
            newest_us: log.newest_us(),
            next_us: frees_us(self.limit.saturating_sub(used) + 1),
            retry_us: frees_us(ask.cost.needed()),
        }
    }

    /// Whether the log has lost no grant by then. One that owes has older grants than the facts tell of.
    pub(super) fn stands_at(&self, facts: &LogFacts, now_us: u64) -> bool {
        facts.used <= self.limit && (facts.used == 0 || now_us < facts.next_us + self.window_us)
    }

    pub(super) fn fresh_at_us(&self, log: &Log) -> u64 {
        if log.grants.is_empty() { 0 } else { log.newest_us() + self.window_us }
    }

    pub(super) fn report(&self, facts: &LogFacts, ask: Attempt, verdict: Verdict) -> Report {
        report(&At { kernel: *self, facts: *facts, now_us: ask.now_us }, ask.cost, verdict)
    }
}

struct At {
    kernel: SlidingLog,
    facts: LogFacts,
    now_us: u64,
}

impl At {
    fn leaves_after_us(&self, granted_us: u64) -> u64 {
        (granted_us + self.kernel.window_us).saturating_sub(self.now_us)
    }
}

impl Reading for At {
    fn max_cost(&self) -> u64 {
        self.kernel.limit
    }
    fn remaining(&self) -> u64 {
        self.kernel.limit.saturating_sub(self.facts.used)
    }
    fn wait_us(&self, units: u64) -> u64 {
        let next = units == self.remaining() + 1;
        self.leaves_after_us(if next { self.facts.next_us } else { self.facts.retry_us })
    }
    fn reset_after_us(&self) -> u64 {
        if self.facts.used == 0 { 0 } else { self.leaves_after_us(self.facts.newest_us) }
    }
}
