//! Counter states of all kernels, and the parts of a state that a report needs.

use super::calendar_window::CalendarState;
use super::fixed_window::WindowState;
use super::gcra::Tat;
use super::interval_bucket::TokenState;
use super::sliding_log::{Log, LogReading};
use super::sliding_window::BucketState;
use super::slots::{OpenSlots, SlotsReading};

/// This many log entries, or slots, take as much memory as a counter with its key.
const GRANTS_PER_COUNTER: usize = 16;

/// What a kernel stores for one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Window(WindowState),
    Calendar(CalendarState),
    Buckets(BucketState),
    Log(Log),
    Tat(Tat),
    Tokens(TokenState),
    Slots(OpenSlots),
}

/// The numbers for a report: the whole state, or four numbers of a log or of slots, which are too large to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterReading {
    Window(WindowState),
    Calendar(CalendarState),
    Buckets(BucketState),
    Log(LogReading),
    Tat(Tat),
    Tokens(TokenState),
    Slots(SlotsReading),
    /// For kernels without a counter.
    Nothing,
}

impl State {
    /// Memory used, in counters with their keys. Allocated log entries and slots count extra.
    pub fn weight(&self) -> usize {
        match self {
            Self::Log(log) => 1 + log.capacity() / GRANTS_PER_COUNTER,
            Self::Slots(slots) => 1 + slots.capacity() / GRANTS_PER_COUNTER,
            Self::Window(_) | Self::Calendar(_) | Self::Buckets(_) | Self::Tat(_) | Self::Tokens(_) => 1,
        }
    }

    // A state of another kind counts as none. Fingerprints in the keys separate the counters of different kernels.

    pub(super) fn window(&self) -> Option<WindowState> {
        if let Self::Window(state) = self { Some(*state) } else { None }
    }

    pub(super) fn calendar(&self) -> Option<CalendarState> {
        if let Self::Calendar(state) = self { Some(*state) } else { None }
    }

    pub(super) fn buckets(&self) -> Option<BucketState> {
        if let Self::Buckets(state) = self { Some(*state) } else { None }
    }

    pub(super) fn log(&self) -> Option<&Log> {
        if let Self::Log(log) = self { Some(log) } else { None }
    }

    pub(super) fn into_log(self) -> Option<Log> {
        if let Self::Log(log) = self { Some(log) } else { None }
    }

    pub(super) fn tat(&self) -> Option<Tat> {
        if let Self::Tat(tat) = self { Some(*tat) } else { None }
    }

    pub(super) fn tokens(&self) -> Option<TokenState> {
        if let Self::Tokens(state) = self { Some(*state) } else { None }
    }

    pub(super) fn slots(&self) -> Option<&OpenSlots> {
        if let Self::Slots(slots) = self { Some(slots) } else { None }
    }

    pub(super) fn into_slots(self) -> Option<OpenSlots> {
        if let Self::Slots(slots) = self { Some(slots) } else { None }
    }
}

impl CounterReading {
    pub(super) fn window(&self) -> Option<WindowState> {
        if let Self::Window(state) = self { Some(*state) } else { None }
    }

    pub(super) fn calendar(&self) -> Option<CalendarState> {
        if let Self::Calendar(state) = self { Some(*state) } else { None }
    }

    pub(super) fn buckets(&self) -> Option<BucketState> {
        if let Self::Buckets(state) = self { Some(*state) } else { None }
    }

    pub(super) fn log(&self) -> Option<LogReading> {
        if let Self::Log(reading) = self { Some(*reading) } else { None }
    }

    pub(super) fn tat(&self) -> Option<Tat> {
        if let Self::Tat(tat) = self { Some(*tat) } else { None }
    }

    pub(super) fn tokens(&self) -> Option<TokenState> {
        if let Self::Tokens(state) = self { Some(*state) } else { None }
    }

    pub(super) fn slots(&self) -> Option<SlotsReading> {
        if let Self::Slots(reading) = self { Some(*reading) } else { None }
    }
}
