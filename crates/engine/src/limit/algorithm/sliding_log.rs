//! Sliding-window log: stores the time of every recorded hit. Admits exactly at most `limit` units in every window `(t
//! - W, t]`.
//!
//! Each entry has a running total, so the sum over a span is one subtraction and every search is a bisection.

use super::attempt::{Attempt, CounterView, Report, Verdict, max_recorded};
use super::undo::{UNDO_SEARCH, Undo};
use std::collections::VecDeque;

/// Largest limit of a sliding log, which stores one entry per instant with recorded hits.
pub const MAX_LOG_LIMIT: u64 = 10_000;

/// `limit` units per sliding window of `window_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// 0 to [`MAX_LOG_LIMIT`] units.
    pub limit: u64,
    /// 1 us to 366 days.
    pub window_us: u64,
}

/// Hits recorded at one time, with the running total up to and including them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogEntry {
    at_us: u64,
    total: u64,
}

/// Oldest entry first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Running total before the oldest entry.
    base: u64,
    entries: VecDeque<LogEntry>,
}

/// The numbers of a log that a report needs. Times are microseconds since the epoch, 0 if there is no such entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReading {
    /// Units in the window.
    pub used: u64,
    pub newest_us: u64,
    /// Time of the entry whose expiry makes `remaining` grow.
    pub next_us: u64,
    /// Time of the entry whose expiry makes room for the attempt's cost.
    pub retry_us: u64,
}

impl Log {
    /// Entries that fit the allocated memory.
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn newest_us(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.at_us)
    }

    fn total(&self) -> u64 {
        self.entries.back().map_or(self.base, |entry| entry.total)
    }

    fn total_before(&self, index: usize) -> u64 {
        if index == 0 { self.base } else { self.entries[index - 1].total }
    }

    pub(super) fn prune(&mut self, index: usize) {
        self.base = self.total_before(index);
        self.entries.drain(..index);
    }

    fn append(&mut self, at_us: u64, units: u64) {
        let total = self.total() + units;
        match self.entries.back_mut() {
            Some(newest) if newest.at_us == at_us => newest.total = total,
            _ => self.entries.push_back(LogEntry { at_us, total }),
        }
    }

    pub(super) fn entries_until(&self, at_us: u64) -> usize {
        self.entries.partition_point(|entry| entry.at_us <= at_us)
    }

    /// Removes units from the first `count` entries, newest of them first. Later entries keep their units.
    pub(super) fn refund_until(&mut self, count: usize, units: u64) {
        let later = self.entries.split_off(count);
        let total_before = self.total();
        self.refund(units);
        let removed = total_before - self.total();
        self.entries.extend(later.iter().map(|entry| LogEntry { total: entry.total - removed, ..*entry }));
    }

    /// Removes units, newest entries first.
    fn refund(&mut self, units: u64) {
        let new_total = self.total().saturating_sub(units).max(self.base);
        if new_total == self.base {
            self.entries.clear();
            return;
        }
        // The first entry that reaches the new total stays, with fewer units.
        let last = self.entries.partition_point(|entry| entry.total < new_total);
        self.entries.truncate(last + 1);
        if let Some(newest) = self.entries.back_mut() {
            newest.total = new_total;
        }
    }
}

impl SlidingLog {
    pub fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    /// Index of the first entry in the window that ends at `now_us` or at the newest entry, whichever is later.
    pub(super) fn first_in_window(&self, log: &Log, now_us: u64) -> usize {
        let end_us = now_us.max(log.newest_us());
        log.entries.partition_point(|entry| entry.at_us + self.window_us <= end_us)
    }

    fn used(&self, log: &Log, now_us: u64) -> u64 {
        log.total() - log.total_before(self.first_in_window(log, now_us))
    }

    pub(super) fn fits(&self, log: Option<&Log>, now_us: u64, needed: u64) -> bool {
        log.map_or(0, |log| self.used(log, now_us)) + needed <= self.limit
    }

    pub(super) fn record(&self, mut log: Log, attempt: Attempt) -> Log {
        let at_us = attempt.now_us.max(log.newest_us());
        let first = self.first_in_window(&log, attempt.now_us);
        if attempt.cost.is_refund() {
            log.prune(first);
            log.refund(attempt.cost.refunded());
            return log;
        }
        let room = max_recorded(self.limit).saturating_sub(log.total() - log.total_before(first));
        let units = attempt.cost.units().unsigned_abs().min(room);
        // Pruned only when appending: expired entries count again if the clock steps back.
        if units > 0 {
            log.prune(first);
            log.append(at_us, units);
        }
        log
    }

    pub(super) fn reading(&self, log: Option<&Log>, attempt: Attempt) -> LogReading {
        let Some(log) = log else {
            return LogReading::default();
        };
        let first = self.first_in_window(log, attempt.now_us);
        let used = log.total() - log.total_before(first);
        if used == 0 {
            return LogReading::default();
        }
        LogReading {
            used,
            newest_us: log.newest_us(),
            next_us: self.makes_room_us(log, first, self.limit.saturating_sub(used) + 1),
            retry_us: self.makes_room_us(log, first, attempt.cost.needed()),
        }
    }

    /// Time of the entry whose expiry makes room for `units`; 0 if there is none. `first` is the first entry in the
    /// window.
    fn makes_room_us(&self, log: &Log, first: usize, units: u64) -> u64 {
        // There is room once the entries up to this running total have expired.
        let expired_total = (log.total() + units).saturating_sub(self.limit);
        let index = log.entries.partition_point(|entry| entry.total < expired_total).max(first);
        log.entries.get(index).map_or(0, |entry| entry.at_us)
    }

    /// Returns `true` if no entry expires until `now_us`. A log in debt returns `false`, because there `next_us` is not
    /// the time of the oldest entry.
    pub(super) fn is_unchanged_until(&self, reading: LogReading, now_us: u64) -> bool {
        reading.used <= self.limit && (reading.used == 0 || now_us < reading.next_us + self.window_us)
    }

    pub(super) fn unused_from_us(&self, log: &Log) -> u64 {
        if log.entries.is_empty() { 0 } else { log.newest_us() + self.window_us }
    }

    pub(super) fn report(&self, reading: LogReading, attempt: Attempt, verdict: Verdict) -> Report {
        let expires_after_us =
            |recorded_us: u64| (recorded_us + self.window_us).saturating_sub(attempt.now_us);
        let remaining = self.limit.saturating_sub(reading.used);
        let view = CounterView {
            max_cost: self.limit,
            remaining,
            reset_after_us: if reading.used == 0 { 0 } else { expires_after_us(reading.newest_us) },
            wait_us: |units| {
                let is_next = units == remaining + 1;
                expires_after_us(if is_next { reading.next_us } else { reading.retry_us })
            },
            longest_wait_us: || self.window_us,
        };
        view.report(attempt.cost, verdict)
    }

    /// Returns `true` if the grant is in the window with too many entries after it.
    pub(super) fn is_too_far_back(&self, log: &Log, undo: Undo) -> bool {
        let until = log.entries_until(undo.grant.id);
        until > self.first_in_window(log, undo.now_us) && log.len() - until >= UNDO_SEARCH
    }
}
