//! One counter from which this process borrows: what it last heard of the counter, the units that it holds,
//! and when it asks for more.

use std::sync::Arc;

use engine::algorithm::{Attempt, CounterReading, Kernel};
use engine::{Charge, Charging, Cost, CounterSnapshot, DecidedBy, Outcome, Verdict};
use smallvec::SmallVec;

use super::ClockMargin;
use super::sizing::{self, Demand, Known, LEAST_UNITS, Share};

/// A refused ask is not repeated for this long.
const REFUSED_US: u64 = 200_000;
/// A failed ask is not repeated for this long.
const FAILED_US: u64 = 1_000_000;
/// Units that were not used for this long are returned, unless calls are rarer.
const IDLE_US: u64 = 50_000;
/// Gaps between calls in which unused units are kept.
const IDLE_CALLS: u64 = 6;
/// Most GCRA grants that a process holds of one counter. Other grants with the same place are added up.
const MOST_GRANTS: usize = 2;

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

    /// Like [`Heard::time_us`], but not behind the store even if its clock is faster by the margin.
    fn latest_us(&self, now_us: u64, margin: ClockMargin) -> u64 {
        let passed_us = now_us.saturating_sub(self.sent_us);
        let ahead_us = (passed_us.saturating_mul(margin.per_mille) / 1_000).saturating_add(margin.fixed_us);
        self.time_us(now_us).saturating_add(ahead_us)
    }
}

/// Units of one charge, or of several whose units share their place.
#[derive(Clone, Debug)]
struct Held {
    /// Different for all grants of the process.
    serial: u64,
    left: u64,
    grant: engine::Grant,
    granted: CounterReading,
}

/// Units that a sweep returns to the store.
#[derive(Clone, Debug)]
pub(super) struct Return {
    pub(super) key: Arc<str>,
    pub(super) kernel: Kernel,
    pub(super) cost: Cost,
}

/// Units taken from held grants for one charge.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// The serial of a grant, and units.
    pub(super) units: SmallVec<[(u64, u64); 2]>,
    /// The reading after the last of these grants.
    pub(super) granted: Option<CounterReading>,
    /// `Some` if the units cover the charge.
    pub(super) outcome: Option<Outcome>,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) hash: u64,
    pub(super) key: Arc<str>,
    pub(super) kernel: Kernel,
    /// Different for all leases of the process.
    pub(super) serial: u64,
    margin: ClockMargin,
    horizon_us: u64,
    held: SmallVec<[Held; 2]>,
    heard: Heard,
    demand: Demand,
    share: Share,
    /// With fewer usable units, the process asks for more.
    ask_below: u64,
    is_asking: bool,
    closed_until_us: u64,
    /// When a unit was last spent, or the lease began.
    spent_at_us: u64,
}

/// What [`Lease::begin`] needs besides the key.
#[derive(Debug)]
pub(super) struct Beginning<'c> {
    pub(super) hash: u64,
    pub(super) serial: u64,
    pub(super) charge: &'c Charge,
    pub(super) heard: Heard,
    /// Recent calls, and when the first of them was.
    pub(super) calls: (u64, u64),
    pub(super) horizon_us: u64,
    pub(super) margin: ClockMargin,
}

impl Lease {
    pub(super) fn begin(key: &str, beginning: Beginning<'_>, now_us: u64) -> Self {
        let Beginning { hash, serial, charge, heard, calls: (calls, since_us), horizon_us, margin } =
            beginning;
        let demand = Demand::new((since_us, now_us), horizon_us, calls, charge.cost.taken());
        Self {
            hash,
            key: key.into(),
            kernel: charge.kernel,
            serial,
            margin,
            horizon_us,
            held: SmallVec::new(),
            heard,
            demand,
            share: Share::default(),
            ask_below: 0,
            is_asking: false,
            closed_until_us: 0,
            spent_at_us: now_us,
        }
    }

    /// Units that the process holds, even if their place is over.
    pub(super) fn held_units(&self) -> u64 {
        self.held.iter().map(|held| held.left).sum()
    }

    /// Returns the units that can be spent now. Units whose own place is over are dropped, and added to `lapsed`.
    pub(super) fn usable(&mut self, now_us: u64, lapsed: &mut u64) -> u64 {
        let at_us = self.heard.latest_us(now_us, self.margin);
        let mut sum: u64 = 0;
        for held in &mut self.held {
            let usable = self.kernel.usable_units(&held.granted, at_us).min(held.left);
            if matches!(self.kernel, Kernel::Gcra(_)) {
                *lapsed += held.left - usable;
                held.left = usable;
            }
            sum += usable;
        }
        sum
    }

    /// Spends usable units on a cost, as far as they suffice. A peek spends nothing, but one usable unit answers it.
    pub(super) fn take(&mut self, cost: Cost, now_us: u64, lapsed: &mut u64) -> Taken {
        let (usable, mut taken) = (self.usable(now_us, lapsed), Taken::default());
        if usable == 0 || cost.needed() > self.kernel.max_cost() {
            return taken;
        }
        let at_us = self.heard.latest_us(now_us, self.margin);
        let mut missing = cost.taken();
        for held in &mut self.held {
            let units = self.kernel.usable_units(&held.granted, at_us).min(held.left).min(missing);
            if units > 0 {
                (held.left, missing) = (held.left - units, missing - units);
                taken.units.push((held.serial, units));
                taken.granted = Some(held.granted);
            }
        }
        if missing > 0 {
            return taken;
        }
        if cost.taken() > 0 {
            self.spent_at_us = now_us;
            if self.demand.add(cost.taken(), now_us) {
                self.plan(now_us);
            }
        }
        taken.outcome = self.outcome(cost, usable - cost.taken(), now_us);
        taken
    }

    /// The outcome if borrowed units cover a cost; `own` of them are left.
    fn outcome(&self, cost: Cost, own: u64, now_us: u64) -> Option<Outcome> {
        let attempt = Attempt { now_us: self.heard.time_us(now_us), cost };
        let reading = self.kernel.reading_later(&self.heard.snapshot.reading, attempt.now_us)?;
        let reading = self.kernel.given_back(reading, own);
        let report = self.kernel.report(&reading, attempt, Verdict::Fits);
        let decided_by = DecidedBy::Lease(CounterSnapshot { now_us: attempt.now_us, reading });
        Some(Outcome { verdict: Verdict::Fits, report, decided_by })
    }

    /// Restores units of a denied request as far as their places are not over, and returns how many lapse.
    pub(super) fn put_back(&mut self, (serial, units): (u64, u64), now_us: u64) -> u64 {
        let at_us = self.heard.latest_us(now_us, self.margin);
        let Some(held) = self.held.iter_mut().find(|held| held.serial == serial) else { return units };
        let room = self.kernel.usable_units(&held.granted, at_us).saturating_sub(held.left);
        let back = units.min(room);
        held.left += back;
        units - back
    }

    pub(super) fn holds(&self, serial: u64) -> bool {
        self.held.iter().any(|held| held.serial == serial)
    }

    /// Adds what a reply says: `recorded` is what it recorded for this process. Returns `false` if the store's clock
    /// and the process's disagree: the units can then not be trusted.
    #[must_use]
    pub(super) fn hear(&mut self, heard: Heard, recorded: u64, now_us: u64) -> bool {
        let Heard { sent_us, snapshot } = heard;
        if snapshot.now_us > self.heard.latest_us(now_us, self.margin) {
            return false;
        }
        let before = self.kernel.reading_later(&self.heard.snapshot.reading, snapshot.now_us);
        let used = |reading: &CounterReading| self.kernel.used(reading, snapshot.now_us);
        let growth = used(&snapshot.reading).saturating_sub(before.as_ref().map_or(0, used));
        if recorded > 0 {
            self.share.add(recorded, growth);
        }
        if sent_us >= self.heard.sent_us {
            self.heard = heard;
        }
        true
    }

    /// Counts a call that the store admitted.
    pub(super) fn admitted(&mut self, units: u64, now_us: u64) {
        self.spent_at_us = now_us;
        self.demand.add(units, now_us);
        self.plan(now_us);
    }

    /// Adds units that the store charged for this process.
    pub(super) fn grant(&mut self, (serial, units): (u64, u64), snapshot: CounterSnapshot) {
        let Some(grant) = self.kernel.grant(&snapshot.reading, units) else { return };
        let has_own_places = matches!(self.kernel, Kernel::Gcra(_));
        let same = self.held.iter_mut().find(|held| held.grant == grant && !has_own_places);
        if let Some(held) = same {
            held.left += units;
            return;
        }
        self.held.retain(|held| held.left > 0);
        self.held.push(Held { serial, left: units, grant, granted: snapshot.reading });
    }

    /// Ends an ask. `is_refused`: `None` if it was granted.
    pub(super) fn asked(&mut self, refusal: Option<Refusal>, now_us: u64) {
        self.is_asking = false;
        self.closed_until_us = match refusal {
            None => 0,
            Some(Refusal::Refused) => now_us.saturating_add(REFUSED_US),
            Some(Refusal::Failed) => now_us.saturating_add(FAILED_US),
        };
    }

    /// Computes how many units the process should hold now. Returns this number, and the deposit.
    fn plan(&mut self, now_us: u64) -> Option<(u64, u64)> {
        let time_us = self.heard.time_us(now_us);
        let reading = self.kernel.reading_later(&self.heard.snapshot.reading, time_us)?;
        let attempt = Attempt { now_us: time_us, cost: Cost::PEEK };
        let remaining = self.kernel.report(&reading, attempt, Verdict::Fits).remaining;
        let known = Known { kernel: &self.kernel, reading: &reading, now_us: time_us, remaining };
        let want = sizing::wanted(known, &self.demand, self.share, self.horizon_us);
        self.ask_below = want.div_ceil(2);
        Some((want, sizing::deposit(known, &self.demand, want)))
    }

    /// Returns the units to ask the store for, if it is time to: an ask is then under way until [`Lease::asked`].
    pub(super) fn ask(&mut self, now_us: u64, lapsed: &mut u64) -> Option<u64> {
        let is_open = !self.is_asking && now_us >= self.closed_until_us;
        let own = if is_open && self.ask_below > 0 { self.usable(now_us, lapsed) } else { u64::MAX };
        if own >= self.ask_below {
            return None;
        }
        let (want, deposit) = self.plan(now_us)?;
        let units = want.saturating_sub(own).saturating_add(deposit);
        let grants = self.held.iter().filter(|held| held.left > 0).count();
        let is_full = matches!(self.kernel, Kernel::Gcra(_)) && grants >= MOST_GRANTS;
        self.is_asking = own < self.ask_below && want >= LEAST_UNITS && units >= LEAST_UNITS && !is_full;
        self.is_asking.then_some(units)
    }

    /// Takes out the units that this process no longer uses: all if it is idle or `is_stopping`, else those whose
    /// place is over. Returns what goes back to the store; the others are added to `lapsed`.
    pub(super) fn sweep(&mut self, (now_us, is_stopping): (u64, bool), lapsed: &mut u64) -> Vec<Return> {
        self.usable(now_us, lapsed);
        let at_us = self.heard.latest_us(now_us, self.margin);
        let is_idle = is_stopping || self.is_idle(now_us);
        let mut returns = Vec::new();
        for held in std::mem::take(&mut self.held) {
            let has_ended = self.kernel.place_end_us(&held.granted).is_some_and(|end_us| end_us <= at_us);
            match self.kernel {
                _ if !is_idle && !has_ended => self.held.push(held),
                _ if held.left == 0 => {}
                // An undo would move the places of later units.
                Kernel::Gcra(_) => *lapsed += held.left,
                kernel => {
                    let cost = Cost::undo(held.left, held.grant);
                    returns.push(Return { key: Arc::clone(&self.key), kernel, cost });
                }
            }
        }
        returns
    }

    fn is_idle(&self, now_us: u64) -> bool {
        let idle_us = self.demand.time_of_calls(IDLE_CALLS).max(IDLE_US);
        now_us.saturating_sub(self.spent_at_us) >= idle_us
    }

    /// `true` if nothing is held, asked for or used, so the lease can end.
    pub(super) fn is_over(&self, now_us: u64) -> bool {
        self.held.is_empty() && !self.is_asking && self.is_idle(now_us)
    }
}

/// Why an ask brought no units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The units do not fit.
    Refused,
    /// No answer. It is unknown whether the units were charged, so they are never spent and never returned.
    Failed,
}

/// The charge of an ask, or of a return.
pub(super) fn charge(kernel: Kernel, cost: Cost) -> Charge {
    let (charging, role) = match cost.is_refund() {
        true => (Charging::Postpaid, engine::Role::Booked),
        false => (Charging::Prepaid, engine::Role::Enforce),
    };
    Charge { kernel, cost, charging, role, on_store_failure: engine::FailurePolicy::Error }
}
