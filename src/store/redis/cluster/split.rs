//! A request over several slots, cut into parts that one node each can decide. Knows what a part is told to do; knows
//! nothing of nodes.

use smallvec::SmallVec;

use crate::engine::algorithm::Kernel;
use crate::engine::{Charge, Charges, Charging, Cost, Outcome, Outcomes, Role};
use crate::store::redis::address;
use crate::store::redis::script::Encoded;

/// Some charges of a request, which are decided together.
pub(super) struct RequestPart {
    /// Where its charges stand in the request.
    places: SmallVec<[usize; 2]>,
    pub(super) charges: Charges,
}

/// The slot that all keys of a request share, none for no keys; `None` when they do not share one.
pub(super) fn slot(request: &Encoded) -> Option<Option<u16>> {
    let mut slots = request.keys().map(address::slot_of_key);
    let first = slots.next();
    slots.all(|slot| Some(slot) == first).then_some(first)
}

impl RequestPart {
    /// One part for each slot. What keeps no counter, and so has no slot, goes with the first.
    pub(super) fn by_slot(charges: &Charges, request: &Encoded) -> Vec<Self> {
        let mut keys = request.keys();
        let mut slots: Vec<u16> = Vec::new();
        let mut parts: Vec<Self> = Vec::new();
        for (place, charge) in charges.values().enumerate() {
            let mut part = 0;
            if has_key(charge) {
                let slot = keys.next().map_or(0, address::slot_of_key);
                part = slots.iter().position(|known| *known == slot).unwrap_or_else(|| {
                    slots.push(slot);
                    slots.len() - 1
                });
            }
            if part == parts.len() {
                parts.push(Self { places: SmallVec::new(), charges: Charges::default() });
            }
            parts[part].add(charges, place);
        }
        parts
    }

    /// One part for each charge.
    pub(super) fn singles(charges: &Charges) -> Vec<Self> {
        (0..charges.len()).map(|place| Self::single(charges, place)).collect()
    }

    fn single(charges: &Charges, place: usize) -> Self {
        let mut part = Self { places: SmallVec::new(), charges: Charges::default() };
        part.add(charges, place);
        part
    }

    /// The same cut further, into one part for each charge of the request that it is of.
    pub(super) fn cut(&self, request: &Charges) -> Vec<Self> {
        self.places.iter().map(|&place| Self::single(request, place)).collect()
    }

    /// A part sees its own verdicts only. So what only all of the request can decide waits: a quota charge holds
    /// nothing back here, and nothing is given back before it is known that the request goes ahead.
    fn add(&mut self, request: &Charges, place: usize) {
        let (key, whole) = request.get(place);
        let role = if matches!(whole.role, Role::Quota(_)) { Role::NonBinding } else { whole.role };
        let cost = if waits(whole) { Cost::refund(0) } else { whole.cost };
        let charge = Charge { role, cost, ..whole.clone() };
        self.charges.push(charge, |text| text.push_str(key));
        self.places.push(place);
    }

    /// The outcomes with where they stand in the request.
    pub(super) fn placed<'a>(
        &'a self,
        outcomes: &'a Outcomes,
    ) -> impl Iterator<Item = (usize, Option<Outcome>)> + 'a {
        self.places.iter().copied().zip(outcomes.by_charge.iter().copied())
    }
}

/// Whether this gives units back only if the request is not held back.
pub(super) fn waits(charge: &Charge) -> bool {
    charge.cost.refunded() > 0 && charge.charging == Charging::Prepaid
}

fn has_key(charge: &Charge) -> bool {
    !matches!(charge.kernel, Kernel::Blocked(_))
}
