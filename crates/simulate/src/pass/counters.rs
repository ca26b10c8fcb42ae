//! The counters of one rule set, by hash: a counter takes about 40 bytes, whatever the length of its key.
//!
//! Times never step back. A counter that equals an unused one is removed when its part of the table would grow, so the
//! table holds the counters in use and at most as many again.

use std::hash::BuildHasherDefault;

use engine::algorithm::{Attempt, BucketState, Kernel, State, Tat, TokenState, WindowState};

use super::by_hash::ByHash;

/// Parts of the table: each grows on its own, so growing needs little memory beside the table. 48 parts of
/// 229,376 counters, which fill 2^18 places to 7/8, are 11 million counters in about 450 MB.
const PARTS: usize = 48;
const MAX_WEIGHT: usize = 229_376;
/// A full part loses one counter in so many.
const EVICTED: usize = 16;
/// So long a counter is kept after it equals an unused one: [`Counters::with_state`] is asked about earlier times.
const LOOK_BACK_US: u64 = 1_000_000;
/// Room of a part for its first counters.
const MIN_ROOM: usize = 56;

/// Counters with their states.
#[derive(Debug)]
pub(super) struct Counters {
    parts: Vec<Part>,
    evictions: u64,
}

#[derive(Debug, Default)]
struct Part {
    counters: ByHash<Kept>,
    /// Sum over all counters: a long log counts as several.
    weight: usize,
}

/// A state in 24 bytes; `limit` is the index of its limit.
#[derive(Debug)]
enum Kept {
    Window { limit: u32, index: u64, count: u64 },
    Buckets { limit: u32, index: u64, current: u32, previous: u32 },
    Tat { limit: u32, whole_us: u64, fraction: u64 },
    Tokens { limit: u32, tokens: i64, start_us: u64 },
    Other(Box<Other>),
}

/// A log, a count above 2^32, or a counter of a limit that came with a request.
#[derive(Debug)]
struct Other {
    state: State,
    unused_from_us: u64,
}

impl Kept {
    /// `limit` is the index of the kernel among those of the rules.
    fn new(state: State, kernel: &Kernel, limit: Option<u32>) -> Self {
        let narrow = |number: u64| u32::try_from(number).ok();
        let Some(limit) = limit else { return Self::other(state, kernel) };
        match state {
            State::Window(WindowState { index, count }) => Self::Window { limit, index, count },
            State::Buckets(BucketState { index, current, previous }) => {
                match (narrow(current), narrow(previous)) {
                    (Some(current), Some(previous)) => Self::Buckets { limit, index, current, previous },
                    _ => Self::other(state, kernel),
                }
            }
            State::Tat(Tat { whole_us, fraction }) => Self::Tat { limit, whole_us, fraction },
            State::Tokens(TokenState { tokens, start_us }) => Self::Tokens { limit, tokens, start_us },
            State::Log(_) => Self::other(state, kernel),
        }
    }

    fn other(state: State, kernel: &Kernel) -> Self {
        let unused_from_us = kernel.unused_from_us(&state);
        Self::Other(Box::new(Other { state, unused_from_us }))
    }

    /// Calls `use_state` with the state.
    fn with_state<T>(&self, use_state: impl FnOnce(&State) -> T) -> T {
        match *self {
            Self::Window { index, count, .. } => use_state(&State::Window(WindowState { index, count })),
            Self::Buckets { index, current, previous, .. } => {
                let (current, previous) = (u64::from(current), u64::from(previous));
                use_state(&State::Buckets(BucketState { index, current, previous }))
            }
            Self::Tat { whole_us, fraction, .. } => use_state(&State::Tat(Tat { whole_us, fraction })),
            Self::Tokens { tokens, start_us, .. } => {
                use_state(&State::Tokens(TokenState { tokens, start_us }))
            }
            Self::Other(ref other) => use_state(&other.state),
        }
    }

    fn into_state(self) -> State {
        match self {
            Self::Other(other) => other.state,
            small => small.with_state(State::clone),
        }
    }

    /// The time from which on the counter equals an unused one; `kernels` are those of the rules, by limit.
    fn unused_from_us(&self, kernels: &[Kernel]) -> u64 {
        let limit = match *self {
            Self::Window { limit, .. }
            | Self::Buckets { limit, .. }
            | Self::Tat { limit, .. }
            | Self::Tokens { limit, .. } => limit,
            Self::Other(ref other) => return other.unused_from_us,
        };
        let kernel = kernels.get(limit as usize);
        kernel.map_or(u64::MAX, |kernel| self.with_state(|state| kernel.unused_from_us(state)))
    }

    fn weight(&self) -> usize {
        match self {
            Self::Other(other) => other.state.weight(),
            Self::Window { .. } | Self::Buckets { .. } | Self::Tat { .. } | Self::Tokens { .. } => 1,
        }
    }
}

impl Counters {
    pub fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Part::default()).collect(), evictions: 0 }
    }

    /// Counters that were removed because the table was full: after that, limits admit too much.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Calls `use_state` with the state of a counter; `None` for an unused one.
    pub fn with_state<T>(&self, counter: u64, use_state: impl FnOnce(Option<&State>) -> T) -> T {
        match self.parts[part(counter)].counters.get(&counter) {
            Some(kept) => kept.with_state(|state| use_state(Some(state))),
            None => use_state(None),
        }
    }

    /// Records a cost. `limit` is the index of the limit in `kernels`, and `None` for a limit of a request.
    pub fn record(
        &mut self,
        counter: u64,
        (kernel, limit): (&Kernel, Option<u32>),
        attempt: Attempt,
        kernels: &[Kernel],
    ) {
        let part = &mut self.parts[part(counter)];
        let Some(place) = part.counters.get_mut(&counter) else {
            let Some(after) = kernel.recorded(None, attempt) else { return };
            if kernel.unused_from_us(&after) > attempt.now_us {
                let kept = Kept::new(after, kernel, limit);
                self.evictions += part.make_room(kept.weight(), attempt.now_us, kernels);
                part.weight += kept.weight();
                part.counters.insert(counter, kept);
            }
            return;
        };
        let free = Kept::Window { limit: 0, index: 0, count: 0 };
        let before = std::mem::replace(place, free);
        part.weight -= before.weight();
        let after = kernel.recorded(Some(before.into_state()), attempt);
        match after.filter(|after| kernel.unused_from_us(after) > attempt.now_us) {
            Some(after) => {
                *place = Kept::new(after, kernel, limit);
                part.weight += place.weight();
            }
            // A refund has emptied it.
            None => {
                part.counters.remove(&counter);
            }
        }
    }
}

/// The part of a counter. The table within a part uses other bits of the hash.
fn part(counter: u64) -> usize {
    let scaled = (u128::from(counter.rotate_left(20)) * PARTS as u128) >> 64;
    usize::try_from(scaled).unwrap_or(0)
}

impl Part {
    /// Makes room for one more counter of this weight. Returns how many others had to go.
    fn make_room(&mut self, weight: usize, now_us: u64, kernels: &[Kernel]) -> u64 {
        if self.counters.len() < self.counters.capacity() && self.weight + weight <= MAX_WEIGHT {
            return 0;
        }
        self.rebuild(|kept| kept.unused_from_us(kernels).saturating_add(LOOK_BACK_US) > now_us);
        let mut evicted = 0;
        while self.weight + weight > MAX_WEIGHT && !self.counters.is_empty() {
            evicted += self.evict(kernels);
        }
        evicted
    }

    /// Removes the counters that would be unused first, as little is used of them.
    fn evict(&mut self, kernels: &[Kernel]) -> u64 {
        let mut times: Vec<u64> = self.counters.values().map(|kept| kept.unused_from_us(kernels)).collect();
        let last = times.len() / EVICTED;
        let (earlier, last_us, _) = times.select_nth_unstable(last);
        let (last_us, mut of_last) = (*last_us, 0);
        let most_of_last = last + 1 - earlier.iter().filter(|time| **time < last_us).count();
        let before = self.counters.len();
        self.rebuild(|kept| {
            let time = kept.unused_from_us(kernels);
            of_last += usize::from(time == last_us);
            time > last_us || time == last_us && of_last > most_of_last
        });
        (before - self.counters.len()) as u64
    }

    /// Keeps the counters for which `holds`, in a new table with room for as many again.
    fn rebuild(&mut self, mut holds: impl FnMut(&Kept) -> bool) {
        let old = std::mem::take(&mut self.counters);
        let kept: Vec<(u64, Kept)> = old.into_iter().filter(|(_, kept)| holds(kept)).collect();
        self.weight = kept.iter().map(|(_, kept)| kept.weight()).sum();
        let room = (2 * kept.len()).clamp(MIN_ROOM, MAX_WEIGHT);
        self.counters = ByHash::with_capacity_and_hasher(room, BuildHasherDefault::default());
        self.counters.extend(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::template::mixed;
    use engine::Cost;
    use engine::algorithm::{FixedWindow, Gcra, Pacing, SlidingLog, SlidingWindow, Verdict};

    fn verdict(counters: &Counters, counter: u64, kernel: &Kernel, attempt: Attempt) -> Verdict {
        counters.with_state(counter, |state| kernel.verdict(state, attempt))
    }

    #[test]
    fn a_counter_is_what_its_kernel_says() {
        let kernels = [
            Kernel::FixedWindow(FixedWindow::new(5, 60_000_000)),
            Kernel::SlidingWindow(SlidingWindow::new(5, 60_000_000)),
            Kernel::SlidingLog(SlidingLog::new(5, 60_000_000)),
            Kernel::Gcra(Gcra::new(5, 60_000_000, 5, Pacing::Meter)),
        ];
        for (limit, kernel) in (0..).zip(&kernels) {
            for limit in [Some(limit), None] {
                let (mut counters, mut expected) = (Counters::new(), None);
                for step in 0..200_u64 {
                    let units = step % 3;
                    let cost = if step % 17 == 0 { Cost::refund(units) } else { Cost::take(units) };
                    let attempt = Attempt { now_us: 1_700_000_000_000_000 + step * 7_000_000, cost };
                    let found = counters.with_state(7, |state| kernel.verdict(state, attempt));
                    assert_eq!(found, kernel.verdict(expected.as_ref(), attempt), "{kernel:?} {step}");
                    if cost.changes_counter() && found == Verdict::Fits {
                        counters.record(7, (kernel, limit), attempt, &kernels);
                        expected = kernel.recorded(expected, attempt);
                    }
                }
            }
        }
    }

    #[test]
    fn counters_that_are_unused_make_room_and_others_stay() {
        let kernel = Kernel::FixedWindow(FixedWindow::new(1, 1_000_000));
        let kernels = [kernel];
        let mut counters = Counters::new();
        for number in 0..3_000_000_u64 {
            // Ten thousand counters per second, each in use until the end of its second.
            let attempt = Attempt { now_us: number * 100, cost: Cost::take(1) };
            let counter = mixed(number);
            counters.record(counter, (&kernel, Some(0)), attempt, &kernels);
            assert_eq!(verdict(&counters, counter, &kernel, attempt), Verdict::Over);
        }
        let kept: usize = counters.parts.iter().map(|part| part.counters.len()).sum();
        assert!(kept < 200_000, "{kept}");
        assert_eq!(counters.evictions(), 0);
    }

    #[test]
    fn a_full_part_loses_the_counters_that_would_be_unused_first() {
        let [minute, day] =
            [60_000_000, 86_400_000_000].map(|us| Kernel::FixedWindow(FixedWindow::new(1, us)));
        let kernels = [minute, day];
        let attempt = Attempt { now_us: 0, cost: Cost::take(1) };
        // The hashes of one part.
        let all = || (0..).map(mixed).filter(|counter| part(*counter) == 0);
        let mut counters = Counters::new();
        for (number, counter) in all().take(MAX_WEIGHT + 1).enumerate() {
            let limit = usize::from(number >= 100_000);
            let index = u32::try_from(limit).ok();
            counters.record(counter, (&kernels[limit], index), attempt, &kernels);
        }
        assert_eq!(counters.evictions(), MAX_WEIGHT as u64 / EVICTED as u64 + 1);
        let lost = |counter: &u64| counters.with_state(*counter, |state| state.is_none());
        let lost: Vec<usize> =
            all().take(MAX_WEIGHT + 1).enumerate().filter(|(_, it)| lost(it)).map(|(at, _)| at).collect();
        assert_eq!(lost.len() as u64, counters.evictions());
        assert!(lost.iter().all(|number| *number < 100_000), "only counters of a minute");
    }
}
