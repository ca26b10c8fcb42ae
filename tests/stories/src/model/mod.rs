//! The answers to a story, computed without the engine: by docs/rules.md, docs/algorithms.md, docs/exceptions.md,
//! docs/configuration.md and the decisions that they name. It has no type of the engine, and reads the story's own
//! data.
//!
//! `rules` says which limits a descriptor meets, `calendar` and `counter` what each limit makes of its counter, and
//! this module how the limits of a call are decided together: docs/algorithms.md, "Several limits, one request",
//! "Charging", "Settling" and "Fields of an answer"; docs/rules.md, "Soft limits" and "Reserve".

mod calendar;
mod charges;
mod counter;
mod rules;

use std::collections::{BTreeMap, HashMap};

use self::charges::{Charge, Cost, Planned, Receipt, Role};
use self::counter::State;
use self::rules::CounterId;
use crate::answer::{Answer, Numbers, Status};
use crate::story::{Call, RowFile, RuleFile, Step, Story};

type States = HashMap<CounterId, State>;

/// The answers to the calls of a story, in order.
#[must_use]
pub fn answers(story: &Story) -> Vec<Answer> {
    let mut model = Model {
        rules: &story.rules,
        rows: &[],
        states: States::new(),
        receipts: HashMap::new(),
        now_us: story.start_us.into(),
        skews_us: [0; 2],
    };
    let mut answers = Vec::new();
    for step in &story.steps {
        match step {
            Step::Clock(by_us) => model.now_us = (model.now_us + i128::from(*by_us)).max(0),
            Step::Skew { process, by_us } => model.skews_us[process % 2] = i128::from(*by_us),
            Step::Rules(files) => model.rules = files,
            Step::Rows(files) => model.rows = files,
            Step::Call(call) => answers.extend(model.answer(call)),
        }
    }
    answers
}

struct Model<'s> {
    rules: &'s [RuleFile],
    rows: &'s [RowFile],
    states: States,
    /// What the admitted calls with these ids recorded.
    receipts: HashMap<u32, Receipt>,
    /// The time of the store.
    now_us: i128,
    skews_us: [i128; 2],
}

/// What a charge did.
struct Outcome {
    is_over: bool,
    numbers: Numbers,
    /// The counter right after the charge.
    after: Option<State>,
}

impl Model<'_> {
    fn answer(&mut self, call: &Call) -> Option<Answer> {
        let planned = self.plan(call)?;
        let mut outcomes: Vec<Option<Outcome>> = planned.charges.iter().map(|_| None).collect();
        for (outcome, charge) in
            outcomes.iter_mut().zip(&planned.charges).filter(|(_, charge)| charge.role == Role::Settle)
        {
            *outcome = Some(self.settle(charge));
        }
        let (verdicts, is_denied) = self.decide(&planned.charges, self.now_us);
        for (index, charge) in
            planned.charges.iter().enumerate().filter(|(_, charge)| charge.role != Role::Settle)
        {
            if charge.is_independent() {
                continue;
            }
            if !verdicts[index].is_over && !is_denied {
                self.record(charge);
            }
        }
        for (index, charge) in
            planned.charges.iter().enumerate().filter(|(_, charge)| charge.role != Role::Settle)
        {
            let verdict = &verdicts[index];
            let after = if charge.is_independent() {
                verdict.after.clone()
            } else {
                self.states.get(&charge.counter).cloned()
            };
            let is_recorded = charge.is_recorded(verdict.is_over, is_denied);
            outcomes[index] =
                Some(self.outcome(charge, verdict.is_over, is_recorded, (&verdict.before, after)));
        }
        let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
        let retry_after_us = self.retry_after_us(&planned, is_denied);
        let receipt = planned.receipt(&outcomes, is_denied);
        let has_receipt = receipt.is_some();
        self.receipts.extend(receipt.map(|receipt| (call.id, receipt)));
        Some(Answer {
            id: call.id,
            is_over: is_denied,
            retry_after_us,
            statuses: planned
                .descriptors
                .iter()
                .map(|descriptor| planned.status(descriptor, &outcomes))
                .collect(),
            announced: announced(&planned.charges, &outcomes),
            charges: outcomes.into_iter().map(|outcome| outcome.numbers).collect(),
            has_receipt,
        })
    }

    fn record(&mut self, charge: &Charge) {
        let after = charge.algorithm.taken(self.states.get(&charge.counter), self.now_us, charge.cost.units);
        self.keep(charge, after, self.now_us);
    }

    /// An unused counter is a missing one, even if the clock steps back (decision 8).
    fn keep(&mut self, charge: &Charge, after: State, now_us: i128) {
        if charge.algorithm.is_unused(Some(&after), now_us) {
            self.states.remove(&charge.counter);
        } else {
            self.states.insert(charge.counter.clone(), after);
        }
    }

    /// The verdict on each charge but settles, and whether the call is denied. Charges that do not depend on the
    /// others take effect one after the other.
    fn decide(&mut self, charges: &[Charge], now_us: i128) -> (Vec<Verdict>, bool) {
        let (mut verdicts, mut over_groups) = (Vec::new(), BTreeMap::new());
        let mut is_denied = false;
        for charge in charges {
            let before = self.states.get(&charge.counter).cloned();
            if charge.role == Role::Settle {
                verdicts.push(Verdict { is_over: false, before: None, after: None });
                continue;
            }
            let is_over = charge.cost.needed() > charge.algorithm.room(before.as_ref(), now_us)
                && !charge.cost.is_refund();
            if charge.is_independent() && charge.cost.units != 0 && charge.has_counter() {
                let after = charge.algorithm.taken(before.as_ref(), now_us, charge.cost.units);
                self.keep(charge, after, now_us);
            }
            match charge.role {
                Role::Enforce => is_denied |= is_over,
                Role::Quota(group) => *over_groups.entry(group).or_insert(false) |= is_over,
                _ => {}
            }
            verdicts.push(Verdict { is_over, before, after: self.states.get(&charge.counter).cloned() });
        }
        let is_denied = is_denied || !over_groups.is_empty() && over_groups.values().all(|is_over| *is_over);
        (verdicts, is_denied)
    }

    /// A settle is a decision of its own, and denies nothing.
    fn settle(&mut self, charge: &Charge) -> Outcome {
        let (state, now_us) = (self.states.get(&charge.counter).cloned(), self.now_us);
        let Cost { units, grant, .. } = charge.cost;
        let after = match grant {
            Some(grant) => Some(charge.algorithm.undone(state.as_ref(), now_us, -units, grant)),
            None if units != 0 => Some(charge.algorithm.taken(state.as_ref(), now_us, units)),
            None => state,
        };
        // Nothing is given back to an unused counter, and it is not written.
        let has_effect = units > 0 || !charge.algorithm.is_unused(self.states.get(&charge.counter), now_us);
        let is_written = charge.has_counter() && units != 0 && has_effect;
        if let Some(after) = after.clone().filter(|_| is_written) {
            self.keep(charge, after, now_us);
        }
        let settled = Charge { cost: Cost::NOTHING, ..charge.clone() };
        self.outcome(&settled, false, false, (&None, after))
    }

    fn outcome(
        &self,
        charge: &Charge,
        is_over: bool,
        is_recorded: bool,
        (before, after): (&Option<State>, Option<State>),
    ) -> Outcome {
        let (algorithm, now_us, state) = (&charge.algorithm, self.now_us, after.as_ref());
        let remaining = algorithm.room(state, now_us).max(0);
        let (most, needed) = (algorithm.most(), charge.cost.needed());
        let retry_after_us = match is_over {
            false => Some(0),
            true if needed > most => None,
            true => Some(algorithm.wait_us(state, now_us, needed)),
        };
        let reset_after_us = algorithm.reset_after_us(state, now_us);
        let until_reset_us = algorithm.window_end_us(state, now_us).unwrap_or(match retry_after_us {
            None => reset_after_us.max(algorithm.longest_wait_us(state, now_us)),
            Some(0) => reset_after_us,
            Some(wait_us) => wait_us,
        });
        let is_waiting = algorithm.is_queue && algorithm.kind == counter::Kind::Rate && !is_over;
        // A hit waits for those before it; one that is not recorded does not wait.
        let units = charge.cost.units;
        let delay_us = match is_waiting && (units == 0 || is_recorded) {
            true if units > 0 => algorithm.delay_us(before.as_ref(), now_us),
            true => algorithm.delay_us(state, now_us),
            false => 0,
        };
        let next_after_us =
            if remaining >= most { 0 } else { algorithm.wait_us(state, now_us, remaining + 1) };
        let numbers = Numbers {
            label: charge.label.clone(),
            is_over,
            remaining: unsigned(remaining),
            retry_after_us: retry_after_us.map(unsigned),
            reset_after_us: unsigned(reset_after_us),
            next_after_us: unsigned(next_after_us),
            delay_us: unsigned(delay_us),
            until_reset_us: unsigned(until_reset_us),
        };
        Outcome { is_over, numbers, after }
    }

    /// The least wait after which the same call is admitted, if nothing else happens.
    fn retry_after_us(&self, planned: &Planned, is_denied: bool) -> Option<u64> {
        if !is_denied {
            return Some(0);
        }
        const FOREVER_US: i128 = 1 << 50;
        let is_denied_in = |us: i128| self.is_denied_again(&planned.charges, self.now_us + us);
        if is_denied_in(FOREVER_US) {
            return None;
        }
        // Units that the call itself has given back can admit it at once.
        let (mut least, mut most) = (0, FOREVER_US);
        while least < most {
            let middle = least + (most - least) / 2;
            if is_denied_in(middle) { least = middle + 1 } else { most = middle }
        }
        Some(unsigned(least))
    }
}

impl Model<'_> {
    /// Whether the call is denied when it comes again: the costs on one counter need their sum.
    fn is_denied_again(&self, charges: &[Charge], now_us: i128) -> bool {
        let (mut taken, mut is_denied) = (HashMap::<&str, i128>::new(), false);
        let mut over_groups = BTreeMap::new();
        for charge in charges.iter().filter(|charge| charge.role != Role::Settle) {
            let mut nothing = 0;
            let taken =
                if charge.has_counter() { taken.entry(&charge.counter).or_default() } else { &mut nothing };
            let needed = *taken + charge.cost.needed();
            *taken += charge.cost.units;
            let room = charge.algorithm.room(self.states.get(&charge.counter), now_us);
            let is_over = !charge.cost.is_refund() && needed > room.max(0);
            match charge.role {
                Role::Enforce => is_denied |= is_over,
                Role::Quota(group) => *over_groups.entry(group).or_insert(false) |= is_over,
                _ => {}
            }
        }
        is_denied || !over_groups.is_empty() && over_groups.values().all(|is_over| *is_over)
    }
}

struct Verdict {
    is_over: bool,
    before: Option<State>,
    after: Option<State>,
}

fn unsigned(number: i128) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// What the counters announce as they are after the call. Of limits with one label the most severe counts.
fn announced(charges: &[Charge], outcomes: &[Outcome]) -> BTreeMap<String, String> {
    let mut announced: BTreeMap<String, String> = BTreeMap::new();
    for (index, (charge, outcome)) in charges.iter().zip(outcomes).enumerate() {
        // Settles are decided before all other charges.
        let is_settle = charge.role == Role::Settle;
        let mut others = charges.iter().enumerate().filter(|(_, other)| other.counter == charge.counter);
        let is_last = !others.any(|(at, other)| {
            if other.role == Role::Settle { is_settle && at > index } else { is_settle || at > index }
        });
        if charge.role == Role::Shadow || !is_last || !charge.has_announcement() {
            continue;
        }
        let used = charge.capacity() - i128::from(outcome.numbers.remaining);
        let name = match (outcome.is_over, charge.near_threshold()) {
            (true, _) if charge.role == Role::Announced => "over",
            (false, Some(threshold)) if used > threshold => "near",
            _ => continue,
        };
        let known = announced.entry(charge.label.clone()).or_default();
        *known = std::mem::take(known).max(name.to_owned());
    }
    announced
}

impl Planned {
    /// What decides a descriptor: of its limits that can deny the one that is over with the longest wait, else the
    /// one with the smallest share left.
    fn status(&self, descriptor: &charges::Described, outcomes: &[Outcome]) -> Option<Status> {
        let unlimited = || {
            let label = descriptor.unlimited.clone()?;
            Some(Status { is_over: false, label, remaining: None })
        };
        let mut deciding: Option<&charges::Limited> = None;
        for limited in &descriptor.limits {
            if deciding.is_none_or(|before| self.is_more_decisive(limited, before, outcomes)) {
                deciding = Some(limited);
            }
        }
        let Some(limited) = deciding else { return unlimited() };
        let (charge, outcome) = (&self.charges[limited.charge], &outcomes[limited.charge]);
        Some(Status {
            is_over: outcome.is_over && !charge.role.never_denies(),
            label: limited.label.clone(),
            remaining: Some(outcome.numbers.remaining),
        })
    }

    fn is_more_decisive(
        &self,
        second: &charges::Limited,
        first: &charges::Limited,
        outcomes: &[Outcome],
    ) -> bool {
        let never_denies = |limited: &charges::Limited| self.charges[limited.charge].role.never_denies();
        let numbers = |limited: &charges::Limited| &outcomes[limited.charge].numbers;
        let wait_us = |limited| numbers(limited).retry_after_us.unwrap_or(u64::MAX);
        let share =
            |limited, other: &charges::Limited| i128::from(numbers(limited).remaining) * other.capacity;
        if never_denies(first) != never_denies(second) {
            return never_denies(first);
        }
        match (numbers(first).is_over, numbers(second).is_over) {
            (true, true) => wait_us(second) > wait_us(first),
            (false, false) => share(second, first) < share(first, second),
            (_, second_is_over) => second_is_over,
        }
    }
}
