//! What a store is asked to decide: the costs of one request, each against one counter.

use std::ops::Range;

use smallvec::SmallVec;

use crate::limit::algorithm::{Attempt, Kernel, Verdict};
use crate::limit::cost::Cost;
use crate::limit::role::Role;
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
    /// Whether this charge records the same whatever the verdict on the request: it is postpaid, or a peek. Such a
    /// charge takes effect before the next charge of its request is decided.
    #[must_use]
    pub fn is_independent(&self) -> bool {
        self.charging == Charging::Postpaid || !self.cost.changes_counter()
    }

    /// Whether the store records this charge, given its own verdict and whether the request is denied.
    #[must_use]
    pub fn is_recorded(&self, verdict: Verdict, request_denied: bool) -> bool {
        if !self.cost.changes_counter() {
            return false;
        }
        match self.charging {
            Charging::Postpaid => true,
            Charging::Prepaid => verdict == Verdict::Fits && !request_denied,
        }
    }

    /// Whether the charge is over its limit whatever its counter: the limit is 0, or the cost exceeds what can ever
    /// fit.
    #[must_use]
    pub fn never_fits(&self) -> bool {
        // An unused counter has the most room, and the same room at any time.
        self.kernel.verdict(None, Attempt { now_us: 0, cost: self.cost }) == Verdict::Over
    }
}

/// All charges of one request, in order, each with the key of its counter.
///
/// Prepaid costs on one counter are added, so a prepaid charge is the last one on its counter. Postpaid charges on one
/// counter stay apart and are decided one after the other, as if each had come with a request of its own. Settles have
/// no part in this: each is decided before all other charges, alone ([`Charges::parts`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// The text of all keys.
    text: String,
    charges: SmallVec<[KeyedCharge; 2]>,
    quota_groups: u16,
    is_known_denied: bool,
    /// Whether several charges have the same key.
    has_repeated_keys: bool,
    caller: Caller,
}

/// Some charges of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargesPart {
    /// The index in the request of each charge.
    pub indices: Vec<usize>,
    pub charges: Charges,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyedCharge {
    /// The key's range in [`Charges::text`]: one allocation serves all keys of a request.
    key: Range<u32>,
    charge: Charge,
}

/// Whether the second of two charges on one counter is merged into the first: one of them is prepaid, or they are equal
/// peeks.
fn is_merged(earlier: &Charge, later: &Charge) -> bool {
    let is_prepaid = earlier.charging == Charging::Prepaid || later.charging == Charging::Prepaid;
    is_prepaid || later.cost.is_peek() && earlier.cost == later.cost
}

/// Most keys are shorter than this many bytes, so reserving this many bytes avoids a reallocation while a key is
/// written.
const USUAL_KEY_LEN: usize = 96;

impl Charges {
    /// Adds a charge. `write_key` appends the key of its counter to the text that it is given. Returns the charge's
    /// index; if the charge is merged with an earlier one on its counter, that one's index.
    ///
    /// If an earlier charge has the same key and another kernel, the numbers of this kernel are added to the key: costs
    /// of different limits have no sum. A settle keeps its key, which the receipt knows.
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

    /// Merges a charge into the last one with its key, which is the text from `start` on. Returns the index of that
    /// charge; `None` if the new one stays apart, perhaps with its numbers in the key.
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
        if charge.charging == Charging::Prepaid && earlier.charging == Charging::Postpaid {
            // A check and a charge of a limit with `reserve`: the check can deny, so their sum can.
            (earlier.charging, earlier.role) = (charge.charging, charge.role);
            self.count_group(charge.role);
        }
        Some(index)
    }

    /// Adds a charge that is not merged with an earlier one of the same key: a charge of another request, whose charges
    /// were merged already.
    pub fn push_apart(&mut self, charge: Charge, key: &str) {
        let is_repeated = self.keys().any(|earlier| earlier == key);
        self.has_repeated_keys |= is_repeated;
        let start = self.text_len();
        self.text.push_str(key);
        self.add(start..self.text_len(), charge);
    }

    /// The last charge whose key is the text from `start` on. Settles do not count.
    fn last_with_key_from(&self, start: u32) -> Option<usize> {
        self.last_with_key(&self.text[start as usize..])
    }

    fn last_with_key(&self, key: &str) -> Option<usize> {
        self.iter().rposition(|(other, charge)| other == key && charge.role != Role::Settle)
    }

    /// Whether each prepaid charge is the last one on its counter, and charges on one counter have one kernel: the
    /// verdict on a prepaid charge is that on all that the request takes from the counter. For debug builds.
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

    /// Sets the cost of a charge.
    pub(crate) fn set_cost(&mut self, index: usize, cost: Cost) {
        self.charges[index].charge.cost = cost;
    }

    /// Removes the charge that was added last.
    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.charges.pop() {
            self.text.truncate(last.key.start as usize);
        }
    }

    /// Removes all charges, and keeps their memory for later ones.
    pub fn clear(&mut self) {
        let Self { mut text, mut charges, .. } = std::mem::take(self);
        text.clear();
        charges.clear();
        *self = Self { text, charges, ..Self::default() };
    }

    /// Adds a charge with the key at this range of the text.
    fn add(&mut self, key: Range<u32>, charge: Charge) -> usize {
        self.count_group(charge.role);
        self.charges.push(KeyedCharge { key, charge });
        self.charges.len() - 1
    }

    fn count_group(&mut self, role: Role) {
        if let Role::Quota(group) = role {
            self.quota_groups = self.quota_groups.max(group + 1);
        }
    }

    /// The index of the charge that leaves the counter of the charge at `index` as it is after the request: the last
    /// one with the same key, before which all settles are decided.
    #[must_use]
    pub fn last_on_counter(&self, index: usize) -> usize {
        if !self.has_repeated_keys {
            return index;
        }
        let (key, _) = self.get(index);
        let last = self.last_with_key(key).or_else(|| self.keys().rposition(|other| other == key));
        last.unwrap_or(index)
    }

    /// The sum of the cost of the charge at `index` and of the costs of all earlier charges on its counter. A check
    /// after takes needs one unit more than they take.
    #[must_use]
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

    /// The charges in order, each with the key of its counter, without the prefix of a store.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Charge)> + DoubleEndedIterator {
        self.charges.iter().map(|keyed| (self.key_text(&keyed.key), &keyed.charge))
    }

    /// The keys of the counters, in the order of the charges.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.charges.iter().map(|keyed| self.key_text(&keyed.key))
    }

    /// The charges in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Charge> {
        self.charges.iter().map(|keyed| &keyed.charge)
    }

    /// The charges in order, to change in place.
    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Charge> {
        self.charges.iter_mut().map(|keyed| &mut keyed.charge)
    }

    /// The charge at an index below [`Charges::len`], with the key of its counter.
    #[must_use]
    pub fn get(&self, index: usize) -> (&str, &Charge) {
        let keyed = &self.charges[index];
        (self.key_text(&keyed.key), &keyed.charge)
    }

    /// The charge at an index below [`Charges::len`].
    #[must_use]
    pub fn charge(&self, index: usize) -> &Charge {
        &self.charges[index].charge
    }

    /// Number of charges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.charges.len()
    }

    /// Whether there is nothing to decide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.charges.is_empty()
    }

    /// Whether no charge has a counter, so that the store is not needed.
    #[must_use]
    pub fn need_no_store(&self) -> bool {
        self.values().all(|charge| !charge.kernel.has_counter())
    }

    /// Number of quota groups.
    #[must_use]
    pub fn quota_groups(&self) -> u16 {
        self.quota_groups
    }

    /// The connection that the request came on.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// Sets the connection that the request came on.
    pub fn set_caller(&mut self, caller: Caller) {
        self.caller = caller;
    }

    /// Marks the request as denied, whatever the verdicts on these charges. Prepaid charges are then not recorded.
    pub fn set_denied(&mut self) {
        self.is_known_denied = true;
    }

    /// Whether the request is denied whatever the verdicts.
    #[must_use]
    pub fn is_known_denied(&self) -> bool {
        self.is_known_denied
    }

    /// Some of the charges, changed by `map`, for a store that decides only these. `map` gets the index of each charge.
    /// Charges with the same key stay apart.
    #[must_use]
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

    /// Whether the request is denied. Prepaid charges are then not recorded.
    ///
    /// A request is denied when it is known to be ([`Charges::set_denied`]), when a charge that enforces is over, or
    /// when there are quota groups and each has a charge over. `is_over` tells whether the charge at an index is over.
    #[must_use]
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

    /// Whether the request is denied whatever its counters: it is known to be denied, or its charges that never fit
    /// ([`Charge::never_fits`]) deny it.
    #[must_use]
    pub fn is_certainly_denied(&self) -> bool {
        self.is_denied(|index| self.charge(index).never_fits())
    }

    /// Whether charges are settles, which a store decides one by one ([`Charges::parts`]).
    #[must_use]
    pub fn has_settles(&self) -> bool {
        self.values().any(|charge| charge.role == Role::Settle)
    }

    /// The parts that a store gets one by one: each settle, and then all other charges together.
    #[must_use]
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
