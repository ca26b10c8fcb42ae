//! Input and output of a store: the costs of one request, each against one counter, and their outcomes.

use std::ops::Range;

use smallvec::SmallVec;
use strum::EnumCount;

use crate::limit::LimitId;
use crate::limit::algorithm::{Attempt, Cost, CounterReading, Grant, Kernel, Report, Verdict};
use crate::limit::spec::{Charging, FailurePolicy};
use crate::request::Caller;

#[cfg(test)]
mod tests;

/// One cost against one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub kernel: Kernel,
    pub cost: Cost,
    pub charging: Charging,
    pub role: Role,
    pub on_store_failure: FailurePolicy,
}

impl Charge {
    /// `true` if the verdict on the request does not change what this charge records: it is postpaid, or a peek. It
    /// takes effect before the request's next charge is decided.
    pub fn is_independent(&self) -> bool {
        self.charging == Charging::Postpaid || !self.cost.changes_counter()
    }

    /// Returns `true` if the store records this charge, given its own verdict and whether the request is denied.
    pub fn is_recorded(&self, verdict: Verdict, request_denied: bool) -> bool {
        if !self.cost.changes_counter() {
            return false;
        }
        match self.charging {
            Charging::Postpaid => true,
            Charging::Prepaid => verdict == Verdict::Fits && !request_denied,
        }
    }

    /// Returns what this charge recorded, judging by the counter after it: the slot, or [`Kernel::grant`].
    pub fn grant(&self, reading: &CounterReading) -> Option<Grant> {
        match self.kernel {
            Kernel::Slots(_) => Some(Grant { id: self.cost.slot_id(), limit: None }),
            kernel => kernel.grant(reading, self.cost.taken()),
        }
    }

    /// Returns the charge that releases this charge's slot.
    pub fn release(&self) -> Self {
        let cost = Cost::undo(1, Grant { id: self.cost.slot_id(), limit: None });
        Self { cost, charging: Charging::Postpaid, role: Role::Settle, ..self.clone() }
    }

    /// `true` if the charge is over its limit whatever its counter: the limit is 0, or the cost exceeds what can ever
    /// fit.
    pub fn never_fits(&self) -> bool {
        // An unused counter has the most room, and the same room at any time.
        self.kernel.verdict(None, Attempt { now_us: 0, cost: self.cost }) == Verdict::Over
    }
}

/// What a denial of the charge means for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount)]
pub enum Role {
    Enforce,
    /// Denies nothing: counted and reported only (`shadow_mode`).
    Shadow,
    /// Never denies the request, but its descriptor's status can be over: a quota rule that cannot change the answer.
    IdleQuota,
    /// Denies nothing: the answer says if it is over (`on_over: announce`).
    Announced,
    /// Denies nothing: books the cost of a request that was admitted earlier (`reserve`).
    Booked,
    /// Denies the request only if every quota group has a denial. Groups count from 0.
    Quota(u16),
    /// Denies nothing, and the store decides it separately ([`Charges::parts`]): the difference
    /// between an estimate and the real cost.
    Settle,
}

impl Role {
    /// For tests that pick from all roles.
    pub const KINDS: usize = Self::COUNT;

    /// `true` if the charge denies nothing, whatever the request's other charges say. The status of its descriptor is
    /// OK.
    pub fn never_denies(self) -> bool {
        match self {
            Self::Shadow | Self::Announced | Self::Booked | Self::Settle => true,
            Self::Enforce | Self::IdleQuota | Self::Quota(_) => false,
        }
    }
}

/// All charges of one request, in order, each with its counter key.
///
/// Prepaid costs on one counter are added, so a prepaid charge is the last one on its counter. Postpaid charges on one
/// counter stay separate and are decided one after the other, as if each came with its own request. Settles are decided
/// before all other charges, each on its own ([`Charges::parts`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// All keys, one after the other.
    text: String,
    charges: SmallVec<[KeyedCharge; 2]>,
    quota_groups: u16,
    is_known_denied: bool,
    /// `true` if several charges may have the same key.
    has_repeated_keys: bool,
    /// `true` if a charge may use borrowed units.
    has_leased: bool,
    caller: Caller,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargesPart {
    /// The index of each charge in the request.
    pub indices: Vec<usize>,
    pub charges: Charges,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyedCharge {
    /// The key's range in [`Charges::text`]: one allocation holds all keys of a request.
    key: Range<u32>,
    charge: Charge,
    /// The limit, if the charge may use borrowed units.
    leased: Option<LimitId>,
}

/// `true` if the later of two charges on one counter is merged into the earlier one: one is prepaid, or they are equal
/// peeks.
fn is_merged(earlier: &Charge, later: &Charge) -> bool {
    let is_prepaid = earlier.charging == Charging::Prepaid || later.charging == Charging::Prepaid;
    is_prepaid || later.cost.is_peek() && earlier.cost == later.cost
}

/// Longer than most keys; reserving this many bytes usually avoids a reallocation while a key is written.
const USUAL_KEY_LEN: usize = 96;

impl Charges {
    /// Adds a charge and returns its index, or that of the earlier charge on its counter if the two are merged.
    /// `write_key` appends the counter key to its argument.
    ///
    /// If an earlier charge has the same key but another kernel, this kernel's parameters are added to the key: costs
    /// of different limits cannot be summed. A settle keeps its key, because the receipt refers to it.
    pub fn push(&mut self, charge: Charge, write_key: impl FnOnce(&mut String)) -> usize {
        let start = self.text_len();
        self.text.reserve(USUAL_KEY_LEN);
        write_key(&mut self.text);
        let written = &self.text[start as usize..];
        if !self.keys().any(|earlier| earlier == written) {
            return self.add(start..self.text_len(), charge);
        }
        if charge.role != Role::Settle
            && let Some(index) = self.merge_from(start, &charge)
        {
            self.text.truncate(start as usize);
            return index;
        }
        self.has_repeated_keys = true;
        self.add(start..self.text_len(), charge)
    }

    /// Merges a charge into the last one with its key, which is the text from `start` on, and returns that charge's
    /// index. `None` if the new charge stays separate, perhaps with its parameters in the key.
    fn merge_from(&mut self, start: u32, charge: &Charge) -> Option<usize> {
        let mut last = self.last_with_key_from(start);
        if last.is_some_and(|index| self.charge(index).kernel != charge.kernel) {
            self.text.push_str(&charge.kernel.numbers());
            last = self.last_with_key_from(start);
        }
        let index = last?;
        let earlier = &mut self.charges[index].charge;
        if !is_merged(earlier, charge) {
            return None;
        }
        earlier.cost = earlier.cost.plus(charge.cost);
        let is_check = charge.charging == Charging::Prepaid && earlier.charging == Charging::Postpaid;
        if is_check || earlier.role.never_denies() && !charge.role.never_denies() {
            // If one of them can deny, so can their sum: a check (`reserve`), or a charge without shadow mode.
            earlier.role = charge.role;
            if is_check {
                earlier.charging = charge.charging;
            }
            self.count_group(charge.role);
        }
        Some(index)
    }

    /// Adds a charge without merging it into an earlier one of the same key, for charges of another request that were
    /// merged already. None of the charges may then use borrowed units.
    pub fn push_apart(&mut self, charge: Charge, key: &str) {
        self.has_repeated_keys = true;
        let start = self.text_len();
        self.text.push_str(key);
        self.add(start..self.text_len(), charge);
    }

    /// The last charge, except settles, whose key is the text from `start` on.
    fn last_with_key_from(&self, start: u32) -> Option<usize> {
        self.last_with_key(&self.text[start as usize..])
    }

    fn last_with_key(&self, key: &str) -> Option<usize> {
        self.iter().rposition(|(other, charge)| other == key && charge.role != Role::Settle)
    }

    /// For debug assertions: `true` if each prepaid charge is the last on its counter, and all charges on one counter
    /// have one kernel. The verdict on a prepaid charge then covers all that the request takes from the counter.
    pub(crate) fn are_merged(&self) -> bool {
        let has_counter = |charge: &Charge| charge.role != Role::Settle && charge.kernel.has_counter();
        self.iter().enumerate().filter(|(_, (_, charge))| has_counter(charge)).all(
            |(index, (key, charge))| {
                let last = self.last_with_key(key).unwrap_or(index);
                last == index
                    || charge.charging == Charging::Postpaid && charge.kernel == self.charge(last).kernel
            },
        )
    }

    pub(crate) fn set_cost(&mut self, index: usize, cost: Cost) {
        self.charges[index].charge.cost = cost;
    }

    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.charges.pop() {
            self.text.truncate(last.key.start as usize);
        }
    }

    /// Removes all charges but keeps the allocated memory.
    pub fn clear(&mut self) {
        let Self { mut text, mut charges, .. } = std::mem::take(self);
        text.clear();
        charges.clear();
        *self = Self { text, charges, ..Self::default() };
    }

    /// Adds a charge with the key at this range of the text.
    fn add(&mut self, key: Range<u32>, charge: Charge) -> usize {
        self.count_group(charge.role);
        self.charges.push(KeyedCharge { key, charge, leased: None });
        self.charges.len() - 1
    }

    fn count_group(&mut self, role: Role) {
        if let Role::Quota(group) = role {
            self.quota_groups = self.quota_groups.max(group + 1);
        }
    }

    /// Returns the index of the charge that determines the counter's state after the request: the last one with the
    /// same key as `index`. All settles come before it.
    pub fn last_on_counter(&self, index: usize) -> usize {
        if !self.has_repeated_keys {
            return index;
        }
        let (key, _) = self.get(index);
        let last = self.last_with_key(key).or_else(|| self.keys().rposition(|other| other == key));
        last.unwrap_or(index)
    }

    /// Adds up the costs of this charge and of all earlier charges on its counter. A check after takes needs one unit
    /// more than they take.
    pub(crate) fn cost_so_far(&self, index: usize) -> Cost {
        let (key, charge) = self.get(index);
        if !self.has_repeated_keys {
            return charge.cost;
        }
        let is_again = |other: &str, charge: &Charge| other == key && charge.role != Role::Settle;
        let earlier = self.iter().take(index).filter(|(other, charge)| is_again(other, charge));
        let earlier = earlier.fold(Cost::refund(0), |sum, (_, charge)| sum.plus(charge.cost));
        let asks_for_more = charge.cost == Cost::PEEK && earlier.taken() > 0;
        earlier.plus(if asks_for_more { Cost::take(1) } else { charge.cost })
    }

    fn text_len(&self) -> u32 {
        u32::try_from(self.text.len())
            .expect("the bounds on requests keep all keys of one request far below 4 GiB")
    }

    fn key_text(&self, key: &Range<u32>) -> &str {
        &self.text[key.start as usize..key.end as usize]
    }

    /// In order, each with its counter key without the store's prefix.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Charge)> + DoubleEndedIterator {
        self.charges.iter().map(|keyed| (self.key_text(&keyed.key), &keyed.charge))
    }

    /// In the order of the charges.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.charges.iter().map(|keyed| self.key_text(&keyed.key))
    }

    pub fn values(&self) -> impl ExactSizeIterator<Item = &Charge> {
        self.charges.iter().map(|keyed| &keyed.charge)
    }

    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Charge> {
        self.charges.iter_mut().map(|keyed| &mut keyed.charge)
    }

    /// # Panics
    /// If `index` is not below [`Charges::len`].
    pub fn get(&self, index: usize) -> (&str, &Charge) {
        let keyed = &self.charges[index];
        (self.key_text(&keyed.key), &keyed.charge)
    }

    /// # Panics
    /// If `index` is not below [`Charges::len`].
    pub fn charge(&self, index: usize) -> &Charge {
        &self.charges[index].charge
    }

    pub fn len(&self) -> usize {
        self.charges.len()
    }

    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// `true` if no charge has a counter.
    pub fn need_no_store(&self) -> bool {
        self.values().all(|charge| !charge.kernel.has_counter())
    }

    pub fn quota_groups(&self) -> u16 {
        self.quota_groups
    }

    /// The connection of the request.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    pub fn set_caller(&mut self, caller: Caller) {
        self.caller = caller;
    }

    /// Denies the request, whatever the verdicts on these charges. Prepaid charges are then not recorded.
    pub fn set_denied(&mut self) {
        self.is_known_denied = true;
    }

    /// `true` if the request is denied whatever the verdicts.
    pub fn is_known_denied(&self) -> bool {
        self.is_known_denied
    }

    /// Lets a charge of `limit` use units that this process borrowed.
    pub fn set_leased(&mut self, index: usize, limit: LimitId) {
        self.has_leased = true;
        self.charges[index].leased = Some(limit);
    }

    /// `true` if a charge may use units that this process borrowed. `false` for a request that is known to be denied,
    /// or that contains settles or several charges with one key.
    pub fn has_leased(&self) -> bool {
        self.has_leased && !self.is_known_denied && !self.has_repeated_keys && !self.has_settles()
    }

    /// The limit whose borrowed units may pay the charge at `index`; `None` for refunds and booked charges. Call it
    /// only if [`Charges::has_leased`].
    pub fn leased(&self, index: usize) -> Option<LimitId> {
        let KeyedCharge { charge, leased, .. } = &self.charges[index];
        leased.filter(|_| !charge.cost.is_refund() && charge.role != Role::Booked)
    }

    /// Selects charges and changes them by `map`, for a store that decides only these. `map` gets the index of each
    /// charge. Charges with the same key stay separate, and none may use borrowed units.
    pub fn filter_map(&self, map: impl Fn(usize, &Charge) -> Option<Charge>) -> Self {
        let (text, charges) = (String::new(), SmallVec::new());
        let mut mapped = Self { text, charges, ..*self };
        for (index, (key, charge)) in self.iter().enumerate() {
            if let Some(charge) = map(index, charge) {
                mapped.push_apart(charge, key);
            }
        }
        mapped
    }

    /// Returns `true` if the request is denied, so prepaid charges are not recorded.
    ///
    /// A request is denied if [`Charges::set_denied`] was called, if an enforcing charge is over, or if there are quota
    /// groups and each has a charge that is over. `is_over` answers for the charge at an index.
    pub fn is_denied(&self, is_over: impl Fn(usize) -> bool) -> bool {
        if self.is_known_denied {
            return true;
        }
        let mut over_groups: SmallVec<[bool; 8]> = SmallVec::from_elem(false, usize::from(self.quota_groups));
        for (index, charge) in self.values().enumerate() {
            match charge.role {
                Role::Enforce if is_over(index) => return true,
                Role::Quota(group) if is_over(index) => over_groups[usize::from(group)] = true,
                Role::Enforce | Role::IdleQuota | Role::Quota(_) => {}
                Role::Shadow | Role::Announced | Role::Booked | Role::Settle => {}
            }
        }
        !over_groups.is_empty() && over_groups.iter().all(|&over| over)
    }

    /// `true` if the request is denied whatever its counters: by [`Charges::set_denied`], or by charges that never fit
    /// ([`Charge::never_fits`]).
    pub fn is_certainly_denied(&self) -> bool {
        self.is_denied(|index| self.charge(index).never_fits())
    }

    /// `true` if there are settles, which a store decides one by one ([`Charges::parts`]).
    pub fn has_settles(&self) -> bool {
        self.values().any(|charge| charge.role == Role::Settle)
    }

    /// The parts that a store gets one by one: each settle, then all other charges together.
    pub fn parts(&self) -> Vec<ChargesPart> {
        let is_settle = |index: usize| self.charge(index).role == Role::Settle;
        let (settles, others): (Vec<_>, Vec<_>) = (0..self.len()).partition(|&index| is_settle(index));
        let others = Some(others).filter(|others| !others.is_empty());
        let parts = settles.into_iter().map(|index| vec![index]).chain(others);
        parts.map(|indices| ChargesPart { charges: self.only(&indices), indices }).collect()
    }

    fn only(&self, indices: &[usize]) -> Self {
        self.filter_map(|index, charge| indices.contains(&index).then(|| charge.clone()))
    }
}

/// What made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store, from this counter.
    Store(CounterSnapshot),
    /// A denial by the store, repeated with the counter as currently known.
    DenyCache(CounterSnapshot),
    /// Units that this process borrowed from the store: the counter as currently known, without the units that the
    /// process still holds.
    Lease(CounterSnapshot),
    /// The limit's failure policy, because the store could not decide.
    Policy(FailurePolicy),
}

impl DecidedBy {
    /// The counter, as exactly as it is known; `None` if a failure policy decided.
    pub fn snapshot(self) -> Option<CounterSnapshot> {
        match self {
            Self::Store(snapshot) | Self::DenyCache(snapshot) | Self::Lease(snapshot) => Some(snapshot),
            Self::Policy(_) => None,
        }
    }
}

/// A counter after a decision, and the time of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// The store's time, microseconds since the epoch.
    pub now_us: u64,
    pub reading: CounterReading,
}

/// The store's answer for one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The numbers after the decision.
    pub report: Report,
    pub decided_by: DecidedBy,
}

/// In the order of the request's charges.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcomes {
    pub by_charge: SmallVec<[Outcome; 2]>,
}

impl Outcomes {
    pub fn is_over(&self, index: usize) -> bool {
        self.by_charge[index].verdict == Verdict::Over
    }

    /// Combines the outcomes of a request that was decided part by part; each part of [`Charges::parts`] once.
    pub fn of_parts<'p>(decided: impl Iterator<Item = (&'p ChargesPart, Self)>) -> Self {
        let indexed = |(part, outcomes): (&'p ChargesPart, Self)| part.indices.iter().zip(outcomes.by_charge);
        let mut all: Vec<(&usize, Outcome)> = decided.flat_map(indexed).collect();
        all.sort_by_key(|&(index, _)| index);
        all.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// For a store that decides in one call: decides all charges together, or the parts one by one if there are
    /// settles.
    pub fn decided_in_parts(charges: &Charges, mut decide: impl FnMut(&Charges) -> Self) -> Self {
        if !charges.has_settles() {
            return decide(charges);
        }
        let parts = charges.parts();
        Self::of_parts(parts.iter().map(|part| (part, decide(&part.charges))))
    }
}

impl FromIterator<Outcome> for Outcomes {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        Self { by_charge: outcomes.into_iter().collect() }
    }
}
