//! Concurrency: slots that requests hold until they release them. A slot that is not released ends after the hold.
//!
//! Each slot is identified, so a repeated request needs one slot, and a release frees at most its own. Since a release
//! can come at any time, the reported waits are upper bounds.

use super::attempt::{Attempt, Report, RetryAfter, Verdict};

/// Most slots of a limit.
pub const MAX_SLOTS: u64 = 10_000;

/// Longest hold: one day.
pub const MAX_HOLD_US: u64 = 86_400 * 1_000_000;

/// Reported as `until_reset_us` of a denial: a slot may be free soon.
const SOON_US: u64 = 1_000_000;

/// `limit` slots at once, each for at most `hold_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// 1 to [`MAX_SLOTS`].
    pub limit: u64,
    /// 1 us to [`MAX_HOLD_US`].
    pub hold_us: u64,
}

/// Slots without a release. Ended ones stay until the next slot is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenSlots {
    /// When each slot ends, microseconds since the epoch, and its id. Earliest end first.
    slots: Vec<(u64, u64)>,
    /// [`SlotsReading::removed`] of the last change.
    removed: u64,
}

/// The numbers for a report. Times are microseconds since the epoch, 0 if no slot is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotsReading {
    /// Slots before their end.
    pub open: u64,
    /// The end of the slot after which one more fits than now, or one at all.
    pub frees_us: u64,
    /// The last end.
    pub last_us: u64,
    /// After a release: 1 if the slot was open. Otherwise: ended slots that were removed. Any number if the charge was
    /// not recorded.
    pub removed: u64,
}

impl OpenSlots {
    /// The ends of the open slots, earliest first, microseconds since the epoch.
    pub fn ends(&self, now_us: u64) -> impl Iterator<Item = u64> {
        self.open(now_us).iter().map(|&(end_us, _)| end_us)
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Removes a slot and returns its end; 0 if there is none.
    fn remove(&mut self, id: u64) -> u64 {
        let place = self.slots.iter().position(|&(_, other)| other == id);
        place.map_or(0, |place| self.slots.remove(place).0)
    }

    /// Slots before their end.
    fn open(&self, now_us: u64) -> &[(u64, u64)] {
        &self.slots[self.slots.partition_point(|&(end_us, _)| end_us <= now_us)..]
    }
}

impl Slots {
    pub fn new(limit: u64, hold_us: u64) -> Self {
        Self { limit, hold_us }
    }

    /// One slot is needed, whatever the units, and none if the id is open.
    pub(super) fn fits(&self, slots: Option<&OpenSlots>, attempt: Attempt) -> bool {
        let open = slots.map_or(&[][..], |slots| slots.open(attempt.now_us));
        let id = attempt.cost.slot_id();
        let needed = attempt.cost.needed().min(1);
        open.len() as u64 + needed <= self.limit || open.iter().any(|&(_, other)| other == id)
    }

    /// Adds or releases the cost's slot. The end of an open slot moves, but never to an earlier time.
    pub(super) fn record(&self, mut slots: OpenSlots, attempt: Attempt) -> OpenSlots {
        let Attempt { now_us, cost } = attempt;
        if cost.is_refund() {
            slots.removed = u64::from(slots.remove(cost.slot_id()) > now_us);
            return slots;
        }
        let ended = slots.slots.len() - slots.open(now_us).len();
        slots.slots.drain(..ended);
        slots.removed = ended as u64;
        let end_us = slots.remove(cost.slot_id()).max(now_us + self.hold_us);
        let place = slots.slots.partition_point(|&(other_us, _)| other_us <= end_us);
        slots.slots.insert(place, (end_us, cost.slot_id()));
        slots
    }

    pub(super) fn reading(&self, slots: Option<&OpenSlots>, now_us: u64) -> SlotsReading {
        let Some(slots) = slots else { return SlotsReading::default() };
        let open = slots.open(now_us);
        let above = open.len().saturating_sub(usize::try_from(self.limit).unwrap_or(usize::MAX));
        let end_us = |slot: Option<&(u64, u64)>| slot.map_or(0, |&(end_us, _)| end_us);
        SlotsReading {
            open: open.len() as u64,
            frees_us: end_us(open.get(above)),
            last_us: end_us(open.last()),
            removed: slots.removed,
        }
    }

    pub(super) fn unused_from_us(&self, slots: &OpenSlots) -> u64 {
        slots.slots.last().map_or(0, |&(end_us, _)| end_us)
    }

    pub(super) fn report(&self, reading: SlotsReading, now_us: u64, verdict: Verdict) -> Report {
        let next_after_us = reading.frees_us.saturating_sub(now_us);
        let reset_after_us = reading.last_us.saturating_sub(now_us);
        let (retry_after, until_reset_us) = match verdict {
            Verdict::Fits => (RetryAfter::Now, reset_after_us),
            Verdict::Over => (RetryAfter::In(next_after_us.max(1)), SOON_US),
        };
        let remaining = self.limit.saturating_sub(reading.open);
        Report { retry_after, reset_after_us, next_after_us, until_reset_us, ..Report::unused(remaining) }
    }
}
