//! Cuts a request into parts that one script call each can decide.

use engine::{Charge, Charges, Charging, Cost, Role};
use smallvec::SmallVec;

use crate::redis::script::EncodedRequest;

/// Charges of a request that are decided together.
pub(super) struct RequestPart {
    /// Each charge's index in the request.
    indices: SmallVec<[usize; 2]>,
    pub(super) charges: Charges,
}

impl RequestPart {
    /// Returns one part per place. Charges without a key, and so without a place, join the first part. `request` is the
    /// encoding of `charges`. `place_of` returns where the counter with this key is.
    pub(super) fn by_place<P: Copy + Eq>(
        charges: &Charges,
        request: &EncodedRequest,
        place_of: impl Fn(&Charge, &str) -> P,
    ) -> Vec<Self> {
        let mut keys = request.keys();
        let mut known: SmallVec<[P; 4]> = SmallVec::new();
        let mut parts: Vec<Self> = Vec::new();
        for (index, charge) in charges.values().enumerate() {
            let key = if charge.kernel.has_counter() { keys.next() } else { None };
            let part = key.map_or(0, |key| position_or_push(&mut known, place_of(charge, key)));
            if part == parts.len() {
                parts.push(Self::of_request(charges));
            }
            parts[part].push(charges, index);
        }
        parts
    }

    pub(super) fn singles(charges: &Charges) -> Vec<Self> {
        (0..charges.len()).map(|index| Self::single(charges, index)).collect()
    }

    fn single(charges: &Charges, index: usize) -> Self {
        let mut part = Self::of_request(charges);
        part.push(charges, index);
        part
    }

    /// Returns a part without charges. A request that is denied whatever its counters records nothing prepaid in any
    /// part.
    fn of_request(request: &Charges) -> Self {
        let mut charges = Charges::default();
        charges.set_caller(request.caller());
        if request.is_certainly_denied() {
            charges.set_denied();
        }
        Self { indices: SmallVec::new(), charges }
    }

    /// Returns one part per charge of this part. `request` has all charges.
    pub(super) fn split_further(&self, request: &Charges) -> Vec<Self> {
        self.indices.iter().map(|&index| Self::single(request, index)).collect()
    }

    /// Adds the charge at `index` of the request. A server sees only its part, but quota groups and deferred refunds
    /// depend on the whole request: in a part, a quota charge denies nothing, and a deferred refund is a peek.
    fn push(&mut self, request: &Charges, index: usize) {
        let (key, charge) = request.get(index);
        let role = if matches!(charge.role, Role::Quota(_)) { Role::IdleQuota } else { charge.role };
        let cost = if is_deferred(charge) { Cost::refund(0) } else { charge.cost };
        self.charges.push_apart(Charge { role, cost, ..charge.clone() }, key);
        self.indices.push(index);
    }

    /// Each charge's index in the request.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().copied()
    }
}

/// `true` if the charge is sent only once the whole request is known to be admitted: a prepaid refund.
pub(super) fn is_deferred(charge: &Charge) -> bool {
    charge.cost.refunded() > 0 && charge.charging == Charging::Prepaid
}

fn position_or_push<P: Copy + Eq>(known: &mut SmallVec<[P; 4]>, place: P) -> usize {
    known.iter().position(|other| *other == place).unwrap_or_else(|| {
        known.push(place);
        known.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::slot::slot_of_key;
    use engine::algorithm::{Blocked, FixedWindow, Kernel};
    use engine::{Caller, FailurePolicy};

    const ENFORCE: Role = Role::Enforce;

    fn charges(all: &[(&str, Cost, Charging, Role)]) -> Charges {
        let mut charges = Charges::default();
        for &(key, cost, charging, role) in all {
            let kernel = match key {
                "" => Kernel::Blocked(Blocked::new(1)),
                _ => Kernel::FixedWindow(FixedWindow::new(5, 1_000_000)),
            };
            let charge = Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Error };
            charges.push(charge, |text| text.push_str(key));
        }
        charges
    }

    fn taken(keys: &[&str]) -> Charges {
        let charge = |key| (key, Cost::take(1), Charging::Prepaid, ENFORCE);
        charges(&keys.iter().copied().map(charge).collect::<Vec<_>>())
    }

    /// The places are cluster slots.
    fn by_slot(charges: &Charges) -> Vec<RequestPart> {
        let request = EncodedRequest::new(charges, "p:");
        RequestPart::by_place(charges, &request, |_, key| slot_of_key(key))
    }

    #[test]
    fn the_hash_tags_of_all_keys_decide_whether_a_request_has_one_slot() {
        let parts = |keys: &[&str]| by_slot(&taken(keys)).len();
        assert_eq!(parts(&["x{a}", "y{a}"]), 1);
        assert_eq!(parts(&["x{a}", "", "y{a}"]), 1, "a blocked limit has no key");
        assert_eq!(parts(&["", "x{a}"]), 1);
        assert_eq!(parts(&["x{a}", "y{b}"]), 2);
        assert_eq!(parts(&[""]), 1);
    }

    fn indices(parts: &[RequestPart]) -> Vec<Vec<usize>> {
        parts.iter().map(|part| part.indices.to_vec()).collect()
    }

    #[test]
    fn charges_of_a_slot_stay_together() {
        let charges = taken(&["", "1{a}", "2{b}", "3{a}", "4{c}"]);
        let parts = by_slot(&charges);
        assert_eq!(indices(&parts), [vec![0, 1, 3], vec![2], vec![4]]);
        let keys: Vec<_> = parts[0].charges.keys().collect();
        assert_eq!(keys, ["", "1{a}", "3{a}"]);
        assert_eq!(indices(&RequestPart::singles(&charges)), [[0], [1], [2], [3], [4]]);
        assert_eq!(indices(&parts[0].split_further(&charges)), [[0], [1], [3]]);
    }

    #[test]
    fn a_part_has_the_caller_of_the_request() {
        let mut charges = taken(&["1{a}", "2{b}"]);
        charges.set_caller(Caller(7));
        let parts = by_slot(&charges);
        let again = parts[0].split_further(&charges);
        assert!(parts.iter().chain(&again).all(|part| part.charges.caller() == Caller(7)));
    }

    #[test]
    fn no_part_of_a_request_that_never_fits_reserves_units() {
        let one = (Cost::take(1), Charging::Prepaid);
        let is_denied = |limit_of_0: (&str, Role), cost| {
            let (key, role) = limit_of_0;
            let all =
                [("1{a}", one.0, one.1, ENFORCE), (key, cost, one.1, role), ("3{c}", one.0, one.1, ENFORCE)];
            let whole = charges(&all);
            let parts = by_slot(&whole);
            let again = parts[0].split_further(&whole);
            let denied: Vec<_> =
                parts.iter().chain(&again).map(|part| part.charges.is_known_denied()).collect();
            assert!(denied.iter().all(|each| *each == denied[0]), "{denied:?}");
            denied[0]
        };
        assert!(!is_denied(("2{b}", ENFORCE), Cost::take(5)), "the limit of a window");
        assert!(is_denied(("2{b}", ENFORCE), Cost::take(6)));
        assert!(is_denied(("", ENFORCE), one.0), "a limit of 0");
        assert!(!is_denied(("", Role::IdleQuota), one.0));
        assert!(!is_denied(("", ENFORCE), Cost::refund(1)));
        assert!(is_denied(("", Role::Quota(0)), one.0), "the only group");
    }

    #[test]
    fn what_depends_on_the_whole_request_is_left_out_of_a_part() {
        let whole = charges(&[
            ("1{a}", Cost::take(2), Charging::Prepaid, Role::Quota(1)),
            ("2{a}", Cost::refund(2), Charging::Prepaid, ENFORCE),
            ("3{a}", Cost::refund(2), Charging::Postpaid, ENFORCE),
            ("4{a}", Cost::take(2), Charging::Prepaid, Role::IdleQuota),
        ]);
        let parts = by_slot(&whole);
        let sent: Vec<_> = parts[0].charges.values().map(|charge| (charge.cost, charge.role)).collect();
        let expected = [
            (Cost::take(2), Role::IdleQuota), // a quota group counts over the whole request
            (Cost::refund(0), ENFORCE),       // refunded only if the request is admitted
            (Cost::refund(2), ENFORCE),       // a postpaid refund depends on nothing
            (Cost::take(2), Role::IdleQuota),
        ];
        assert_eq!(sent, expected);
        let deferred: Vec<_> = whole.values().map(is_deferred).collect();
        assert_eq!(deferred, [false, true, false, false]);
    }
}
