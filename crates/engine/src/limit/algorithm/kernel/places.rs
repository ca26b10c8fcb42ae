//! Places: when a process may spend units that it borrowed, which is to say charged ahead of its requests.
//!
//! Each granted unit occupies a place, an interval of time. As long as each unit is spent at most once and in its
//! place, the bound in docs/algorithms.md holds for any number of processes, even if some of them crash and replies are
//! lost. The units of a window or an interval of tokens share one place, which ends with it. A GCRA unit occupies one
//! of its own: from the grant until the theoretical arrival time reaches the unit. The places of one grant
//! therefore end at the limit's rate, one by one.

use super::Kernel;
use crate::limit::algorithm::calendar_window::CalendarState;
use crate::limit::algorithm::fixed_window::WindowState;
use crate::limit::algorithm::sliding_window::BucketState;
use crate::limit::algorithm::state::CounterReading;

impl Kernel {
    /// Returns how many units of a grant may still be spent at `now_us` (microseconds since the epoch, not before the
    /// store's time): `u64::MAX` means all of them. `granted` is the reading after the grant.
    ///
    /// The result never grows with time, and an ended place is lost: keep the smallest result so far.
    /// 0 for a sliding log, a queue, slots and a blocked limit, and for the reading of another kernel.
    pub fn usable_units(&self, granted: &CounterReading, now_us: u64) -> u64 {
        if let Self::Gcra(k) = self {
            return granted.tat().map_or(0, |tat| k.places_after(tat, now_us));
        }
        let is_open = self.place_end_us(granted).is_some_and(|end_us| now_us < end_us);
        if is_open { u64::MAX } else { 0 }
    }

    /// Returns when the place that all units of a grant share ends, in microseconds since the epoch. `None` if each
    /// unit occupies its own place, or cannot be spent later.
    pub fn place_end_us(&self, granted: &CounterReading) -> Option<u64> {
        match self {
            Self::FixedWindow(k) => granted.window().map(|state| k.end_us(state)),
            Self::CalendarWindow(k) => granted.calendar().map(|state| k.end_us(state)),
            Self::SlidingWindow(k) => granted.buckets().map(|state| (state.index + 1) * k.window_us),
            Self::IntervalBucket(k) => granted.tokens().map(|state| state.start_us + k.interval_us),
            Self::SlidingLog(_) | Self::Gcra(_) | Self::Slots(_) | Self::Blocked(_) => None,
        }
    }

    /// Returns the reading without `units` that were taken but not spent, for reports. They were granted in the
    /// window or interval of the reading.
    pub fn given_back(&self, mut reading: CounterReading, units: u64) -> CounterReading {
        match &mut reading {
            CounterReading::Window(WindowState { count: used, .. })
            | CounterReading::Calendar(CalendarState { count: used, .. })
            | CounterReading::Buckets(BucketState { current: used, .. }) => {
                *used = used.saturating_sub(units)
            }
            CounterReading::Tokens(state) => state.tokens = state.tokens.saturating_add_unsigned(units),
            CounterReading::Tat(tat) => {
                if let Self::Gcra(k) = self {
                    *tat = k.minus(*tat, k.drain(units)).unwrap_or_default();
                }
            }
            CounterReading::Log(_) | CounterReading::Slots(_) | CounterReading::Nothing => {}
        }
        reading
    }
}
