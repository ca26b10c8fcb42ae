//! The state of a counter, and what each algorithm makes of it.
//!
//! Everything that an answer says of time is searched by its definition (docs/algorithms.md, "Fields of an answer"):
//! the least wait after which something is true of the counter, if nothing else happens. The states and their changes
//! are those of docs/algorithms.md: `fixed_window` and its calendars, `sliding_window`, `sliding_log`, `gcra` with
//! its two other names, and `token_bucket` with `refill: interval`; undoing a grant is its table of "Settling", and
//! what a changed number keeps is "A changed limit" and decision 49. All numbers are integers of 128 bits.

use std::rc::Rc;

use super::calendar::Calendar;

/// The most units that are counted.
const MOST: i128 = (1 << 53) - 1;
/// Longer than every wait: 35 years.
const FOREVER_US: i128 = 1 << 50;
/// A settle of a log does not write this many later entries again.
const LOG_SEARCH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Window,
    Sliding,
    Log,
    /// `gcra`, and the buckets that drain or fill evenly.
    Rate,
    Interval,
    /// A limit of 0, or a block.
    Zero,
}

/// An algorithm with its numbers.
#[derive(Clone, Debug)]
pub(super) struct Algorithm {
    pub(super) kind: Kind,
    pub(super) limit: i128,
    /// Units that an unused bucket has.
    pub(super) burst: i128,
    pub(super) period_us: i128,
    pub(super) calendar: Option<Rc<Calendar>>,
    pub(super) is_queue: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// The start of the window, and its count.
    Window(i128, i128),
    /// The number of the window, its count, and that of the window before.
    Sliding(i128, i128, i128),
    /// Times and units, oldest first.
    Log(Vec<(i128, i128)>),
    /// The instant at which the counter is unused again: microseconds, and parts of one by the denominator of the
    /// rate.
    Rate(i128, i128),
    /// Tokens, and the start of the interval.
    Interval(i128, i128),
    Zero,
}

impl Algorithm {
    /// The largest cost that ever fits.
    pub(super) fn most(&self) -> i128 {
        match self.kind {
            Kind::Window | Kind::Sliding | Kind::Log => self.limit,
            Kind::Rate | Kind::Interval => self.burst,
            Kind::Zero => 0,
        }
    }

    /// The window at a time: its start and its end.
    fn window(&self, now_us: i128) -> (i128, i128) {
        match &self.calendar {
            Some(calendar) => calendar.window(now_us),
            None => {
                let start_us = now_us / self.period_us * self.period_us;
                (start_us, start_us + self.period_us)
            }
        }
    }

    /// Numerator and denominator of the microseconds in which one unit drains.
    fn rate(&self) -> (i128, i128) {
        let (mut a, mut b) = (self.period_us, self.limit);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (self.period_us / a, self.limit / a)
    }

    /// An instant of the state in parts of a microsecond. A fraction of another rate that is none here is the next
    /// microsecond (decision 49).
    fn instant(&self, whole_us: i128, fraction: i128) -> i128 {
        let (_, parts) = self.rate();
        if fraction >= parts { (whole_us + 1) * parts } else { whole_us * parts + fraction }
    }

    fn of_instant(&self, instant: i128) -> State {
        let (_, parts) = self.rate();
        State::Rate(instant / parts, instant % parts)
    }

    /// The counter at a time.
    pub(super) fn at(&self, state: Option<&State>, now_us: i128) -> State {
        match (self.kind, state) {
            (Kind::Window, Some(State::Window(start_us, count)))
                if *start_us >= self.window(now_us).0 && *count > 0 =>
            {
                State::Window(*start_us, *count)
            }
            (Kind::Window, _) => State::Window(self.window(now_us).0, 0),
            (Kind::Sliding, Some(State::Sliding(number, current, previous))) if current + previous > 0 => {
                let now = now_us / self.period_us;
                match now - number {
                    1 => State::Sliding(now, 0, *current),
                    later if later > 1 => State::Sliding(now, 0, 0),
                    _ => State::Sliding(*number, *current, *previous),
                }
            }
            (Kind::Sliding, _) => State::Sliding(now_us / self.period_us, 0, 0),
            (Kind::Log, Some(State::Log(entries))) => {
                let end_us = entries.last().map_or(now_us, |(at_us, _)| now_us.max(*at_us));
                let is_in = |(at_us, _): &&(i128, i128)| at_us + self.period_us > end_us;
                State::Log(entries.iter().filter(is_in).copied().collect())
            }
            (Kind::Log, _) => State::Log(Vec::new()),
            (Kind::Rate, Some(State::Rate(whole_us, fraction))) => {
                self.of_instant(self.instant(*whole_us, *fraction))
            }
            (Kind::Rate, _) => State::Rate(0, 0),
            (Kind::Interval, Some(State::Interval(tokens, start_us))) => {
                let passed = (now_us.max(*start_us) - start_us) / self.period_us;
                match tokens + passed * self.limit {
                    tokens if tokens >= self.burst => State::Interval(self.burst, now_us),
                    tokens => State::Interval(tokens, start_us + passed * self.period_us),
                }
            }
            (Kind::Interval, _) => State::Interval(self.burst, now_us),
            (Kind::Zero, _) => State::Zero,
        }
    }

    /// Parts of a microsecond until a bucket has drained.
    fn backlog(&self, state: &State, now_us: i128) -> i128 {
        let State::Rate(whole_us, fraction) = *state else { return 0 };
        (self.instant(whole_us, fraction) - now_us * self.rate().1).max(0)
    }

    /// Units that fit; negative if more are used than the limit has.
    pub(super) fn room(&self, state: Option<&State>, now_us: i128) -> i128 {
        match self.at(state, now_us) {
            State::Window(_, count) => self.limit - count,
            State::Sliding(number, current, previous) => {
                let passed_us = (now_us - number * self.period_us).max(0);
                let weighted =
                    (previous * (self.period_us - passed_us) + self.period_us - 1).div_euclid(self.period_us);
                self.limit - current - weighted
            }
            State::Log(entries) => self.limit - entries.iter().map(|(_, units)| units).sum::<i128>(),
            state @ State::Rate(..) => {
                let (per_unit, _) = self.rate();
                (self.burst * per_unit - self.backlog(&state, now_us)).div_euclid(per_unit)
            }
            State::Interval(tokens, _) => tokens,
            State::Zero => 0,
        }
    }

    pub(super) fn is_unused(&self, state: Option<&State>, now_us: i128) -> bool {
        match self.at(state, now_us) {
            State::Window(_, count) => count == 0,
            State::Sliding(_, current, previous) => current + previous == 0,
            State::Log(entries) => entries.is_empty(),
            state @ State::Rate(..) => self.backlog(&state, now_us) == 0,
            State::Interval(tokens, _) => tokens >= self.burst,
            State::Zero => true,
        }
    }

    /// The counter after units are taken (positive) or given back. A debt is at most one further limit or burst.
    pub(super) fn taken(&self, state: Option<&State>, now_us: i128, units: i128) -> State {
        let count_of = |count: i128, most: i128| {
            if units < 0 { (count + units).max(0) } else { (count + units).min(most).max(count) }
        };
        match self.at(state, now_us) {
            State::Window(start_us, count) => State::Window(start_us, count_of(count, MOST)),
            State::Sliding(number, current, previous) => {
                State::Sliding(number, count_of(current, 2 * self.limit), previous)
            }
            State::Log(entries) if units < 0 => State::Log(without_newest(entries, -units)),
            State::Log(mut entries) => {
                let used: i128 = entries.iter().map(|(_, units)| units).sum();
                let units = units.min(2 * self.limit - used);
                if units <= 0 {
                    // Nothing is recorded: entries that have left the window are there again if the clock steps back.
                    return state.cloned().unwrap_or(State::Log(entries));
                }
                let at_us = entries.last().map_or(now_us, |(at_us, _)| now_us.max(*at_us));
                match entries.last_mut() {
                    Some(newest) if newest.0 == at_us => newest.1 += units,
                    _ => entries.push((at_us, units)),
                }
                State::Log(entries)
            }
            State::Rate(whole_us, fraction) => {
                let ((per_unit, parts), instant) = (self.rate(), self.instant(whole_us, fraction));
                let (now, units) = (now_us * parts, units.clamp(-2 * self.burst, 2 * self.burst));
                let base = instant.max(now);
                self.of_instant(if units < 0 {
                    (instant + units * per_unit).max(now)
                } else {
                    (base + units * per_unit).min(now + 2 * self.burst * per_unit).max(base)
                })
            }
            State::Interval(tokens, start_us) => {
                State::Interval((tokens - units).max(tokens.min(-self.burst)).min(self.burst), start_us)
            }
            State::Zero => State::Zero,
        }
    }

    /// What a receipt says of the grant that left this state: its window, the time of its entry or of the last
    /// refill, or the instant at which the counter was unused before it, in whole microseconds.
    pub(super) fn grant(&self, state: &State, units: i128) -> i128 {
        match state {
            State::Window(start_us, _) | State::Interval(_, start_us) => *start_us,
            State::Sliding(number, ..) => *number,
            State::Log(entries) => entries.last().map_or(0, |(at_us, _)| *at_us),
            State::Rate(whole_us, fraction) => {
                let (per_unit, parts) = self.rate();
                (self.instant(*whole_us, *fraction) - units * per_unit).div_euclid(parts)
            }
            State::Zero => 0,
        }
    }

    /// The counter after units of a grant come back, less what time has given back since. A bucket gives back the
    /// time in which they drain at the number that took them.
    pub(super) fn undone(
        &self,
        state: Option<&State>,
        now_us: i128,
        units: i128,
        (grant, number): (i128, i128),
    ) -> State {
        match self.at(state, now_us) {
            State::Window(start_us, count) if start_us == grant => {
                State::Window(start_us, (count - units).max(0))
            }
            State::Sliding(number, current, previous) if number == grant => {
                State::Sliding(number, (current - units).max(0), previous)
            }
            State::Sliding(number, current, previous) if number == grant + 1 => {
                State::Sliding(number, current, (previous - units).max(0))
            }
            State::Log(mut entries) => {
                let later = entries.split_off(entries.partition_point(|(at_us, _)| *at_us <= grant));
                if later.len() < LOG_SEARCH {
                    entries = without_newest(entries, units);
                }
                entries.extend(later);
                State::Log(entries)
            }
            State::Rate(whole_us, fraction) => {
                let ((_, parts), instant) = (self.rate(), self.instant(whole_us, fraction));
                let drained = (now_us - grant).max(0) * parts;
                let (whole_us, rest) = (units * self.period_us / number, units * self.period_us % number);
                let back = (whole_us * parts + rest * parts / number - drained).max(0);
                self.of_instant(if back > 0 { (instant - back).max(now_us * parts) } else { instant })
            }
            State::Interval(tokens, start_us) => {
                let refills = ((start_us - grant).max(0) + self.period_us - 1) / self.period_us;
                State::Interval((tokens + (units - refills * self.limit).max(0)).min(self.burst), start_us)
            }
            state => state,
        }
    }

    /// The least wait of at least `from` after which `is_true`, which stays true.
    fn least_wait(from: i128, is_true: impl Fn(i128) -> bool) -> i128 {
        let (mut least, mut most) = (from, FOREVER_US);
        while least < most {
            let middle = least + (most - least) / 2;
            if is_true(middle) { most = middle } else { least = middle + 1 }
        }
        least
    }

    pub(super) fn wait_us(&self, state: Option<&State>, now_us: i128, units: i128) -> i128 {
        Self::least_wait(1, |us| self.room(state, now_us + us) >= units)
    }

    pub(super) fn reset_after_us(&self, state: Option<&State>, now_us: i128) -> i128 {
        Self::least_wait(0, |us| self.is_unused(state, now_us + us))
    }

    /// The time until the window ends, whether something is counted in it or not.
    pub(super) fn window_end_us(&self, state: Option<&State>, now_us: i128) -> Option<i128> {
        match self.at(state, now_us) {
            State::Window(start_us, _) => Some(self.window(start_us).1 - now_us),
            State::Zero => Some(self.window(now_us).1 - now_us),
            _ => None,
        }
    }

    /// The longest wait that the limit tells any cost.
    pub(super) fn longest_wait_us(&self, state: Option<&State>, now_us: i128) -> i128 {
        match self.at(state, now_us) {
            State::Sliding(number, ..) => (number + 2) * self.period_us - now_us,
            State::Log(_) => self.period_us,
            State::Rate(..) => {
                let (per_unit, parts) = self.rate();
                (self.burst * per_unit + parts - 1).div_euclid(parts)
            }
            State::Interval(tokens, start_us) => {
                let start_us = if tokens >= self.burst { now_us } else { start_us };
                start_us + (self.burst + self.limit - 1) / self.limit * self.period_us - now_us
            }
            State::Window(..) | State::Zero => 0,
        }
    }

    /// How long a hit in a queue waits for those before it.
    pub(super) fn delay_us(&self, state: Option<&State>, now_us: i128) -> i128 {
        let parts = self.rate().1;
        (self.backlog(&self.at(state, now_us), now_us) + parts - 1).div_euclid(parts)
    }
}

/// Entries without the newest units.
fn without_newest(mut entries: Vec<(i128, i128)>, mut units: i128) -> Vec<(i128, i128)> {
    while let (Some(newest), true) = (entries.last_mut(), units > 0) {
        let back = newest.1.min(units);
        newest.1 -= back;
        units -= back;
        if newest.1 == 0 {
            entries.pop();
        }
    }
    entries
}
