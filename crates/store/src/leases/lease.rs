//! One counter from which this process borrows: what it last heard of the counter, the units that it holds,
//! and when it asks for more.

use std::sync::Arc;

use engine::algorithm::{Attempt, CounterReading, Kernel};
use engine::{Charge, Charging, Cost, CounterSnapshot, DecidedBy, LimitId, Outcome, Report, Verdict};

use super::lender::Errand;
use super::sizing::{self, LEAST_UNITS, Share};

/// Unused units are returned after this long at the earliest, and after this part of the horizon.
const IDLE_US: u64 = 50_000;
const IDLE_PARTS: u64 = 20;
/// Usual gaps between calls in which unused units are kept.
const IDLE_GAPS: u64 = 6;
/// With fewer calls within its horizon, a lease ends. It begins with more, so that few leases begin and end in turn.
const RARE_GAPS: u64 = 3;
/// A new gap between calls counts as one of this many.
const AVERAGED_GAPS: u64 = 16;

/// How much the store's clock may gain on this process's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockMargin {
    /// Thousandths by which the store's clock may run faster.
    pub(super) per_mille: u64,
    /// Microseconds by which it may be ahead in any case.
    pub(super) fixed_us: u64,
}

/// A reply of the store about one counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// The process's clock before the call was sent. The store decided after it.
    pub(super) sent_us: u64,
    pub(super) snapshot: CounterSnapshot,
}

impl Heard {
    /// The store's time at `now_us` of the process's clock, if both clocks run equally fast.
    fn time_us(&self, now_us: u64) -> u64 {
        self.snapshot.now_us.saturating_add(now_us.saturating_sub(self.sent_us))
    }
}

/// Units of one charge, or of several whose units share their place.
#[derive(Clone, Debug)]
struct Held {
    left: u64,
    /// Units set aside for requests that wait for the store. They may come back, so they keep their places.
    set_aside: u64,
    granted: CounterReading,
    /// When the place that all units share ends. `None` if each unit occupies its own place.
    end_us: Option<u64>,
}

impl Held {
    fn usable(&self, kernel: &Kernel, at_us: u64) -> u64 {
        kernel.usable_units(&self.granted, at_us).saturating_sub(self.set_aside).min(self.left)
    }
}

/// Units set aside for one charge of a request.
#[derive(Clone, Debug)]
pub(super) struct Portion {
    /// The lease's own key: a later lease on the same counter allocates another.
    pub(super) lease: Arc<str>,
    pub(super) units: u64,
    granted: CounterReading,
    /// `Some` if the units cover the charge.
    pub(super) outcome: Option<Outcome>,
    /// A postpaid charge is recorded whatever the answer.
    pub(super) is_prepaid: bool,
    /// `true` if the store denies the rest.
    pub(super) is_over: bool,
}

impl Portion {
    pub(super) fn is_gcra(&self) -> bool {
        matches!(self.granted, CounterReading::Tat(_))
    }

    /// What the store decides of the charge; `None` if the units cover it.
    pub(super) fn rest(&self, charge: &Charge) -> Option<Charge> {
        let cost = Cost::take(charge.cost.taken() - self.units);
        self.outcome.is_none().then(|| Charge { cost, ..charge.clone() })
    }

    /// If the store charged the rest in a later window, lets a receipt name the one of these units: an undo there
    /// returns no unit that others were refused.
    pub(super) fn name_window(&self, kernel: &Kernel, outcome: &mut Outcome) {
        if let (Verdict::Fits, DecidedBy::Store(snapshot)) = (outcome.verdict, &mut outcome.decided_by)
            && kernel.place_end_us(&self.granted) < kernel.place_end_us(&snapshot.reading)
        {
            snapshot.reading = self.granted;
        }
    }
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) key: Arc<str>,
    pub(super) limit: LimitId,
    pub(super) kernel: Kernel,
    margin: ClockMargin,
    horizon_us: u64,
    held: Vec<Held>,
    heard: Heard,
    /// Thousandths of a unit that this process admits per second.
    rate: u64,
    share: Share,
    /// With fewer usable units, the process asks for more.
    ask_below: u64,
    /// When the process may ask again; `u64::MAX` while it is asking.
    pub(super) asks_from_us: u64,
    /// When a unit was last spent, or the lease began.
    spent_at_us: u64,
    /// Usual time between calls.
    gap_us: u64,
}

impl Lease {
    /// Begins after `calls` like this charge from `since_us` on.
    pub(super) fn begin(
        ((key, charge), limit): ((&str, &Charge), LimitId),
        heard: Heard,
        (calls, since_us, now_us): (u64, u64, u64),
        (longest_us, margin): (u64, ClockMargin),
    ) -> Self {
        let horizon_us = sizing::horizon_us(&charge.kernel, longest_us);
        let passed_us = now_us.saturating_sub(since_us);
        Self {
            key: key.into(),
            limit,
            kernel: charge.kernel,
            margin,
            horizon_us,
            held: Vec::new(),
            heard,
            rate: sizing::averaged(0, (calls.saturating_mul(charge.cost.taken()), passed_us), horizon_us),
            share: Share::default(),
            ask_below: 0,
            asks_from_us: 0,
            spent_at_us: now_us,
            gap_us: passed_us / calls,
        }
    }

    /// The store's time, at the latest.
    fn latest_us(&self, now_us: u64) -> u64 {
        let ClockMargin { per_mille, fixed_us } = self.margin;
        let passed_us = now_us.saturating_sub(self.heard.sent_us);
        let ahead_us = (passed_us.saturating_mul(per_mille) / 1_000).saturating_add(fixed_us);
        self.heard.time_us(now_us).saturating_add(ahead_us)
    }

    /// Units that the process holds, even if their place is over.
    pub(super) fn held_units(&self) -> u64 {
        self.held.iter().map(|held| held.left).sum()
    }

    /// Returns the units that can be spent now.
    pub(super) fn usable(&self, now_us: u64) -> u64 {
        let at_us = self.latest_us(now_us);
        self.held.iter().map(|held| held.usable(&self.kernel, at_us)).sum()
    }

    /// Drops the units whose own places are over, and returns how many. Call it before units are spent: later places
    /// of a grant must not make up for ended ones.
    pub(super) fn lapse(&mut self, now_us: u64) -> u64 {
        let (at_us, mut lapsed) = (self.latest_us(now_us), 0);
        for held in self.held.iter_mut().filter(|held| held.end_us.is_none()) {
            let usable = held.usable(&self.kernel, at_us);
            lapsed += held.left - usable;
            held.left = usable;
        }
        lapsed
    }

    /// Sets usable units aside for a charge, as far as they suffice. A peek spends nothing, but one usable unit answers
    /// it.
    pub(super) fn set_aside(&mut self, charge: &Charge, now_us: u64) -> Option<Portion> {
        let (cost, kernel, at_us) = (charge.cost, self.kernel, self.latest_us(now_us));
        if cost.needed() > kernel.max_cost() {
            return None;
        }
        // Older units end first.
        let with = |least: u64| self.held.iter().position(|held| held.usable(&kernel, at_us) >= least);
        let index = with(cost.needed().max(1)).or_else(|| with(1))?;
        let held = &mut self.held[index];
        let units = held.usable(&kernel, at_us).min(cost.taken());
        (held.left, held.set_aside) = (held.left - units, held.set_aside + units);
        let granted = held.granted;
        let is_covered = units == cost.taken();
        if is_covered && units > 0 {
            self.spend(units, now_us);
        }
        let outcome = if is_covered { self.outcome(charge, now_us) } else { None };
        let is_prepaid = charge.charging == Charging::Prepaid;
        Some(Portion { lease: Arc::clone(&self.key), units, granted, outcome, is_prepaid, is_over: false })
    }

    /// The outcome if the process's units cover a charge.
    fn outcome(&self, charge: &Charge, now_us: u64) -> Option<Outcome> {
        let snapshot = self.advanced(now_us)?;
        let (report, decided_by) = (Report::unused(0), DecidedBy::Lease(snapshot));
        let mut outcome = Outcome { verdict: Verdict::Fits, report, decided_by };
        free(charge, &mut outcome, self.usable(now_us));
        Some(outcome)
    }

    /// The counter as currently known.
    fn advanced(&self, now_us: u64) -> Option<CounterSnapshot> {
        let now_us = self.heard.time_us(now_us);
        let reading = self.kernel.reading_later(&self.heard.snapshot.reading, now_us)?;
        Some(CounterSnapshot { now_us, reading })
    }

    /// Spends units that were set aside, or restores them as far as their places are not over. Returns how many are
    /// restored.
    pub(super) fn finish(&mut self, portion: &Portion, goes_back: bool, now_us: u64) -> u64 {
        let at_us = self.latest_us(now_us);
        let Some(held) = self.held.iter_mut().find(|held| held.granted == portion.granted) else { return 0 };
        held.set_aside = held.set_aside.saturating_sub(portion.units);
        let open = self.kernel.usable_units(&held.granted, at_us);
        let room = open.saturating_sub(held.set_aside).saturating_sub(held.left);
        let back = if goes_back { portion.units.min(room) } else { 0 };
        held.left += back;
        back
    }

    /// Adds what a reply says: `recorded` is what it recorded for this process. Returns `false` if the store's clock
    /// and the process's disagree: the units can then not be trusted.
    #[must_use]
    pub(super) fn hear(&mut self, heard: Heard, recorded: u64, now_us: u64) -> bool {
        let CounterSnapshot { now_us: time_us, reading } = heard.snapshot;
        if time_us > self.latest_us(now_us) {
            return false;
        }
        let before = self.kernel.reading_later(&self.heard.snapshot.reading, time_us);
        let used = |reading: &CounterReading| self.kernel.used(reading, time_us);
        let growth = used(&reading).saturating_sub(before.as_ref().map_or(0, used));
        if recorded > 0 {
            self.share.add(recorded, growth);
        }
        if heard.sent_us >= self.heard.sent_us {
            self.heard = heard;
        }
        true
    }

    /// Counts a call that was admitted.
    pub(super) fn spend(&mut self, units: u64, now_us: u64) {
        let gap_us = now_us.saturating_sub(self.spent_at_us);
        self.gap_us = (self.gap_us * (AVERAGED_GAPS - 1) + gap_us) / AVERAGED_GAPS;
        self.spent_at_us = now_us;
        self.rate = sizing::averaged(self.rate, (units, gap_us), self.horizon_us);
    }

    /// Adds units that the store charged for this process.
    pub(super) fn grant(&mut self, units: u64, granted: CounterReading) {
        let end_us = self.kernel.place_end_us(&granted);
        let is_same = |held: &&mut Held| end_us.is_some() && held.end_us == end_us;
        match self.held.iter_mut().find(is_same) {
            Some(held) => held.left += units,
            None => self.held.push(Held { left: units, set_aside: 0, granted, end_us }),
        }
        self.held.retain(|held| held.left + held.set_aside > 0);
    }

    /// Computes how many units the process should hold now. Returns this number, and the deposit.
    pub(super) fn plan(&mut self, now_us: u64) -> Option<(u64, u64)> {
        let snapshot = self.advanced(now_us)?;
        let want = sizing::wanted(&self.kernel, &snapshot, self.rate, self.share, self.horizon_us);
        self.ask_below = want.div_ceil(2);
        Some((want, sizing::deposit(&self.kernel, &snapshot, self.rate, want)))
    }

    /// Returns an ask if it is time for one. It is then under way until `asks_from_us` is set again.
    pub(super) fn ask(&mut self, now_us: u64) -> Option<Errand> {
        if now_us < self.asks_from_us || self.ask_below == 0 {
            return None;
        }
        let own = self.usable(now_us);
        if own >= self.ask_below {
            return None;
        }
        let (want, deposit) = self.plan(now_us)?;
        let units = want.saturating_sub(own).saturating_add(deposit);
        if own >= self.ask_below || want < LEAST_UNITS || units < LEAST_UNITS {
            return None;
        }
        self.asks_from_us = u64::MAX;
        Some(self.errand(Cost::take(units)))
    }

    pub(super) fn errand(&self, cost: Cost) -> Errand {
        Errand { key: Arc::clone(&self.key), kernel: self.kernel, cost }
    }

    /// Takes out the units that this process no longer uses: all if it is idle or `is_stopping`, else those whose
    /// shared place is over. Returns what goes back to the store, and how many units lapse.
    pub(super) fn sweep(&mut self, now_us: u64, is_stopping: bool) -> (Vec<Errand>, u64) {
        let (at_us, is_idle) = (self.latest_us(now_us), is_stopping || self.is_idle(now_us));
        let (mut returns, mut lapsed) = (Vec::new(), self.lapse(now_us));
        for held in std::mem::take(&mut self.held) {
            let has_ended = held.end_us.is_some_and(|end_us| end_us <= at_us);
            if !is_idle && !has_ended && held.left + held.set_aside > 0 {
                self.held.push(held);
                continue;
            }
            // An undo would move the places of later units, if each unit occupies its own.
            let grant = held.end_us.and_then(|_| self.kernel.grant(&held.granted, held.left));
            match grant.filter(|_| held.left > 0) {
                Some(grant) => returns.push(self.errand(Cost::undo(held.left, grant))),
                None => lapsed += held.left,
            }
        }
        (returns, lapsed)
    }

    fn is_idle(&self, now_us: u64) -> bool {
        // Callers that wait for a distant store are not idle: a horizon is many times as long as a call.
        let shortest_us = IDLE_US.max(self.horizon_us / IDLE_PARTS);
        now_us.saturating_sub(self.spent_at_us) >= (self.gap_us * IDLE_GAPS).max(shortest_us)
    }

    /// `true` if nothing is held or asked for, and calls are too rare, so the lease can end.
    pub(super) fn is_over(&self, now_us: u64) -> bool {
        let is_rare = self.gap_us > self.horizon_us / RARE_GAPS;
        self.held.is_empty() && self.asks_from_us != u64::MAX && (is_rare || self.is_idle(now_us))
    }
}

/// Changes an outcome to report `own` units as free. They count as taken in the store, but this process holds them.
pub(super) fn free(charge: &Charge, outcome: &mut Outcome, own: u64) {
    use DecidedBy::{DenyCache, Lease, Store};
    let (Store(snapshot) | DenyCache(snapshot) | Lease(snapshot)) = &mut outcome.decided_by else { return };
    snapshot.reading = charge.kernel.given_back(snapshot.reading, own);
    let attempt = Attempt { now_us: snapshot.now_us, cost: charge.cost };
    let report = charge.kernel.report(&snapshot.reading, attempt, outcome.verdict);
    outcome.report = Report { remaining: report.remaining.max(own), ..report };
}
