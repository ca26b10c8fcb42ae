//! The counters of one key for all tried limits; only those that can differ are decided.
//!
//! While a limit has denied nothing, no larger one has: it recorded the same requests and has more room. So limits are
//! decided in ascending order, up to the first that admitted every request since its counter was unused. When that one
//! denies, the next counter is derived: windows and logs share the state, GCRA replays kept requests.

use std::slice;

use engine::algorithm::{Attempt, Kernel, State};
use engine::{Charge, Verdict};
use smallvec::SmallVec;

use super::tried::{OverAt, Tried};

/// Requests kept for the counters of larger limits. If there are more, these counters are created immediately.
const MAX_KEPT: usize = 16;
/// This many kept requests take as much memory as a counter.
const KEPT_PER_COUNTER: usize = 4;

/// How the counters of larger limits follow from those of smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Following {
    /// Limits that have denied nothing have the same state.
    SameState,
    /// The state depends on the limit: each has to record the requests.
    SameRequests,
    /// A larger limit can deny what a smaller one admits. The intervals of a bucket that refills faster begin later: it
    /// is full and forgets its interval while a slower one still waits for its last unit.
    Apart,
}

fn following(tried: &[Tried]) -> Following {
    match tried.first().map(|tried| tried.kernel) {
        Some(Kernel::SlidingWindow(_) | Kernel::SlidingLog(_)) => Following::SameState,
        Some(Kernel::Gcra(_)) => Following::SameRequests,
        Some(Kernel::IntervalBucket(_)) => Following::Apart,
        // These are never tried.
        Some(Kernel::FixedWindow(_) | Kernel::CalendarWindow(_) | Kernel::Slots(_) | Kernel::Blocked(_))
        | None => Following::Apart,
    }
}

/// The counters of one key. An unused one may be `None`.
#[derive(Debug, Default)]
pub(super) struct TriedCounters {
    /// The counters of the smallest limits. Every larger limit has admitted all requests since the last of these
    /// counters was unused.
    decided: SmallVec<[Option<State>; 1]>,
    /// Those requests, if the counters of larger limits are built from them.
    kept: Vec<Attempt>,
}

impl TriedCounters {
    /// Decides the only charge of a request to the counter by each of these limits. Times never step back.
    pub fn decide(&mut self, tried: &[Tried], charge: &Charge, now_us: u64) -> OverAt {
        let following = following(tried);
        // An undo returns what time has left of one grant, which is less for a larger limit.
        if following == Following::Apart || charge.cost.grant().is_some() {
            return self.decide_all(tried, slice::from_ref(charge), now_us);
        }
        self.forget_unused(tried, now_us);
        let attempt = Attempt { now_us, cost: charge.cost };
        let mut over_at = 0;
        for (place, Tried { kernel, .. }) in tried.iter().enumerate() {
            if place == self.decided.len() {
                self.decided.push(None);
            }
            let verdict = kernel.verdict(self.decided[place].as_ref(), attempt);
            let is_last = place + 1 == self.decided.len();
            if let (true, Verdict::Over, Some(next)) = (is_last, verdict, tried.get(place + 1)) {
                let next = self.larger(&next.kernel, following);
                self.decided.push(next);
            }
            if charge.is_recorded(verdict, verdict == Verdict::Over) {
                let state = self.decided[place].take();
                self.decided[place] = kernel.recorded(state, attempt);
            }
            match verdict {
                Verdict::Over => over_at |= 1 << place,
                Verdict::Fits if is_last => {
                    self.keep(tried, following, attempt);
                    break;
                }
                Verdict::Fits => {}
            }
        }
        over_at
    }

    /// Decides the charges of a request to the counter by each of these limits.
    pub fn decide_all(&mut self, tried: &[Tried], charges: &[Charge], now_us: u64) -> OverAt {
        self.forget_unused(tried, now_us);
        self.make_all(tried, following(tried));
        let mut over_at = 0;
        for (place, (Tried { kernel, .. }, state)) in tried.iter().zip(&mut self.decided).enumerate() {
            over_at |= OverAt::from(is_over(kernel, state, charges, now_us)) << place;
        }
        over_at
    }

    /// Drops unused counters, except the smallest: if one is unused, so are those of all larger limits.
    fn forget_unused(&mut self, tried: &[Tried], now_us: u64) {
        let used = self.used(tried, now_us);
        if used < self.decided.len() {
            self.decided.truncate(used);
            self.decided.push(None);
            self.kept.clear();
        }
    }

    /// The counter of the limit after the last one decided.
    fn larger(&self, kernel: &Kernel, following: Following) -> Option<State> {
        match following {
            Following::SameState => self.decided.last().cloned().flatten(),
            Following::SameRequests => {
                self.kept.iter().fold(None, |state, attempt| kernel.recorded(state, *attempt))
            }
            Following::Apart => None,
        }
    }

    /// Keeps a request that the last limit admitted, for the larger ones.
    fn keep(&mut self, tried: &[Tried], following: Following, attempt: Attempt) {
        let is_needed = following == Following::SameRequests && self.decided.len() < tried.len();
        if !is_needed || !attempt.cost.changes_counter() {
            return;
        }
        self.kept.push(attempt);
        if self.kept.len() > MAX_KEPT {
            self.make_all(tried, following);
        }
    }

    /// Creates the counters of all limits.
    fn make_all(&mut self, tried: &[Tried], following: Following) {
        while let Some(next) = tried.get(self.decided.len()) {
            let larger = self.larger(&next.kernel, following);
            self.decided.push(larger);
        }
        self.kept = Vec::new();
    }

    /// Number of counters up to the last used one.
    fn used(&self, tried: &[Tried], now_us: u64) -> usize {
        let is_used = |(tried, state): (&Tried, &Option<State>)| {
            state.as_ref().is_some_and(|state| tried.kernel.unused_from_us(state) > now_us)
        };
        tried.iter().zip(&self.decided).rposition(is_used).map_or(0, |last| last + 1)
    }

    /// `true` if no counter is used: a key without counters gives the same answers.
    pub fn are_unused(&self, tried: &[Tried], now_us: u64) -> bool {
        self.used(tried, now_us) == 0
    }

    /// Memory, in counters.
    pub fn weight(&self) -> usize {
        let states = self.decided.iter().map(|state| state.as_ref().map_or(1, State::weight)).sum::<usize>();
        states + self.kept.capacity() / KEPT_PER_COUNTER
    }
}

/// Decides several charges to one counter like a store. Returns `true` if the last one is over the limit.
fn is_over(kernel: &Kernel, state: &mut Option<State>, charges: &[Charge], now_us: u64) -> bool {
    let record = |state: &mut Option<State>, charge: &Charge, verdict, is_denied| {
        if charge.is_recorded(verdict, is_denied) {
            *state = kernel.recorded(state.take(), Attempt { now_us, cost: charge.cost });
        }
    };
    let mut verdicts: SmallVec<[Verdict; 2]> = SmallVec::new();
    for charge in charges {
        let verdict = kernel.verdict(state.as_ref(), Attempt { now_us, cost: charge.cost });
        if charge.is_independent() {
            record(state, charge, verdict, false);
        }
        verdicts.push(verdict);
    }
    let is_denied = verdicts.contains(&Verdict::Over);
    for (charge, verdict) in charges.iter().zip(&verdicts).filter(|(charge, _)| !charge.is_independent()) {
        record(state, charge, *verdict, is_denied);
    }
    verdicts.last() == Some(&Verdict::Over)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use engine::{Charges, Charging, Cost, FailurePolicy, Limit, LimitSpec, Period, Role, Unit};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::counters::new_counters;
    use super::super::tried::{SweptLimit, is_swept};
    use super::*;
    use engine::Algorithm;

    const T0_US: u64 = 1_700_000_040_000_000;

    /// Takes, peeks, refunds, and the undo of a grant some time ago.
    fn any_cost() -> impl Strategy<Value = (Cost, u64)> {
        let units = || prop_oneof![5 => Just(1_u64), 2 => 2..5_u64, 1 => 5..30_u64];
        prop_oneof![
            12 => units().prop_map(|units| (Cost::take(units), 0)),
            1 => Just((Cost::PEEK, 0)),
            1 => units().prop_map(|units| (Cost::refund(units), 0)),
            1 => (units(), 1..2_000_000_u64).prop_map(|(units, ago_us)| (Cost::refund(units), ago_us)),
        ]
    }

    fn swept() -> impl Strategy<Value = Algorithm> {
        let spec = |algorithm| LimitSpec::new(algorithm, 1, Period::one(Unit::Second));
        let swept = Algorithm::ALL.iter().copied().filter(|algorithm| is_swept(&spec(*algorithm)));
        proptest::sample::select(swept.collect::<Vec<_>>())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn each_number_decides_as_a_store_does_also_when_grants_are_undone(
            algorithm in swept(),
            units in 1..20_u64,
            is_postpaid: bool,
            is_interval: bool,
            requests in vec((0..400_000_u64, vec(any_cost(), 1..3)), 1..80),
        ) {
            let charging = if is_postpaid { Charging::Postpaid } else { Charging::Prepaid };
            let refill = if is_interval { engine::Refill::Interval } else { engine::Refill::Continuous };
            let spec = LimitSpec::new(algorithm, units, Period::one(Unit::Second));
            let limit = Limit::new(LimitSpec { charging, refill, ..spec }).expect("a valid limit");
            let tried = SweptLimit::new(&limit, None).tried;
            let (mut counters, store) = (TriedCounters::default(), new_counters());
            let mut now_us = T0_US;
            for (pause_us, costs) in requests {
                now_us += pause_us;
                let charge = |kernel, (cost, ago_us): &(Cost, u64)| {
                    let undo = || Cost::undo(cost.refunded(), engine::Grant { id: now_us - ago_us, limit: None });
                    let cost = if *ago_us == 0 { *cost } else { undo() };
                    Charge { kernel, cost, charging, role: Role::Enforce, on_store_failure: FailurePolicy::Error }
                };
                let mut expected = 0;
                let mut merged: Vec<Charge> = Vec::new();
                for (place, Tried { kernel, .. }) in tried.iter().enumerate() {
                    let mut charges = Charges::default();
                    for cost in &costs {
                        charges.push(charge(*kernel, cost), |text| write!(text, "{place}").expect("room"));
                    }
                    let outcomes = store.decide_at(&charges, now_us);
                    expected |= OverAt::from(outcomes.is_over(charges.len() - 1)) << place;
                    merged = charges.values().cloned().collect();
                }
                let found = match &merged[..] {
                    [charge] => counters.decide(&tried, charge, now_us),
                    charges => counters.decide_all(&tried, charges, now_us),
                };
                prop_assert_eq!(found, expected, "at {}: {:?}", now_us, merged);
            }
        }
    }

    #[test]
    fn only_the_numbers_that_can_differ_have_counters() {
        let spec = LimitSpec::new(Algorithm::Gcra, 8, Period::one(Unit::Second));
        let tried = SweptLimit::new(&Limit::new(spec).expect("a valid limit"), None).tried;
        let charge = |units| Charge {
            kernel: tried[0].kernel,
            cost: Cost::take(units),
            charging: Charging::Prepaid,
            role: Role::Enforce,
            on_store_failure: FailurePolicy::Error,
        };
        let mut counters = TriedCounters::default();
        let table = [
            // Pause, units, limits that deny, counters.
            (0, 1, 0, 1),
            (999_999, 1, 1, 2),
            (1, 1, 0, 2),
            // The counters of 1 and 2 per second are unused: that of 1 is enough.
            (1_000_000, 1, 0, 1),
            (0, 3, 3, 4),
            (0, 2, 3, 5),
        ];
        let mut now_us = T0_US;
        for (row, (pause_us, units, denying, kept)) in table.into_iter().enumerate() {
            now_us += pause_us;
            let over_at = counters.decide(&tried, &charge(units), now_us);
            assert_eq!((over_at.count_ones(), counters.decided.len()), (denying, kept), "row {row}");
        }
        // Too many requests to keep.
        let mut counters = TriedCounters::default();
        for number in 0..=MAX_KEPT {
            assert_eq!(counters.decided.len(), usize::from(number > 0));
            counters.decide(&tried[10..], &charge(1), T0_US);
        }
        assert_eq!((counters.decided.len(), counters.kept.capacity()), (tried.len() - 10, 0));
    }
}
