//! A settle: the caller of an admitted request returns its receipt with the real cost, and the difference to the
//! estimate is booked. Nothing is stored for it.
//!
//! A real cost above the estimate records the difference in any case. A lower one gives the difference back to the
//! grant of the estimate ([`Cost::undo`]). A limit without an item in the receipt recorded nothing, so it is charged
//! all of the real cost.

use crate::limit::algorithm::{Attempt, Kernel, Verdict};
use crate::limit::role::Role;
use crate::limit::{Charging, Limit};
use crate::request::decision::{Code, Decision};
use crate::request::plan::charge::{Charge, Charges};
use crate::request::receipt::{Receipt, ReceiptItem, UnreadableReceipt};
use crate::request::store::{CounterSnapshot, DecidedBy, Outcome, Outcomes};
use crate::request::{Cost, Grant};

/// A settle of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The index of its charge.
    pub(crate) charge: usize,
    /// `None` for an unreadable receipt.
    nonce: Option<u64>,
    /// The units that the estimate recorded; `None` without an item in the receipt.
    pub estimated: Option<u64>,
    /// The units of the real cost.
    pub actual: u64,
    pub result: SettleResult,
}

/// What a settle did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleResult {
    /// The real cost is charged: what exceeds the estimate was recorded.
    Charged,
    /// What the estimate took above the real cost was given back, as far as time had not given it back.
    Returned,
    /// Nothing was given back: the window is over, or time has given all of it back.
    Kept,
    /// The receipt could not be read, so all of the real cost was recorded.
    Unreadable,
    /// The store did not answer. The estimate stays, unless the store has settled all the same.
    Lost,
}

/// Some charges of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargesPart {
    /// The index in the request of each charge.
    pub indices: Vec<usize>,
    pub charges: Charges,
}

impl Charges {
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

    /// The outcomes of a store that decides a request at once: of all charges together, or of the parts one by one.
    pub fn decided_in_parts(&self, mut decide: impl FnMut(&Self) -> Outcomes) -> Outcomes {
        if !self.has_settles() {
            return decide(self);
        }
        let parts = self.parts();
        Outcomes::of_parts(parts.iter().map(|part| (part, decide(&part.charges))))
    }

    fn only(&self, indices: &[usize]) -> Self {
        self.filter_map(|index, charge| indices.contains(&index).then(|| charge.clone()))
    }
}

impl Outcomes {
    /// The outcomes of a request whose parts were decided one by one: each part of [`Charges::parts`] once.
    pub fn of_parts<'p>(decided: impl Iterator<Item = (&'p ChargesPart, Self)>) -> Self {
        let mut all = Self::default();
        for (part, outcomes) in decided {
            let largest = part.indices.iter().copied().max().map_or(0, |index| index + 1);
            all.by_charge.resize(all.by_charge.len().max(largest), None);
            for (&index, outcome) in part.indices.iter().zip(outcomes.by_charge) {
                all.by_charge[index] = outcome;
            }
        }
        all
    }
}

/// What a caller returns: the receipt of its request, and the units of the real cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned<'r> {
    pub(crate) receipt: &'r Result<Receipt, UnreadableReceipt>,
    pub(crate) actual: u64,
}

/// The settles of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settles(Vec<Settle>);

impl Settles {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn at(&self, charge: usize) -> Option<&Settle> {
        self.0.iter().find(|settle| settle.charge == charge)
    }

    /// Adds the settle of a counter to the charges of its request. Returns the index of its charge. If the request has
    /// the same receipt for the same counter already, the larger real cost counts.
    pub(crate) fn add(
        &mut self,
        charges: &mut Charges,
        (limit, kernel): (&Limit, Kernel),
        Returned { receipt, actual }: Returned<'_>,
        write_key: impl FnOnce(&mut String),
    ) -> usize {
        let charge = Charge {
            kernel,
            cost: Cost::refund(0),
            charging: Charging::Postpaid,
            role: Role::Settle,
            on_store_failure: limit.spec.on_store_failure,
        };
        let receipt = receipt.as_ref().ok();
        let index = charges.push(charge, |text| write_settled_key(text, write_key, kernel, receipt));
        let key = charges.get(index).0;
        let (nonce, item) =
            (receipt.map(|receipt| receipt.nonce), receipt.and_then(|receipt| receipt.item(key)));
        // Two texts that cannot be read are not known to be the same receipt.
        let is_same = |other: &&mut Settle| {
            nonce.is_some() && other.nonce == nonce && charges.get(other.charge).0 == key
        };
        if let Some(settle) = self.0.iter_mut().find(is_same) {
            settle.actual = settle.actual.max(actual);
            charges.pop();
            charges.set_cost(settle.charge, difference(item, settle.actual));
            return settle.charge;
        }
        charges.set_cost(index, difference(item, actual));
        let estimated = item.map(|item| item.units);
        self.0.push(Settle { charge: index, nonce, estimated, actual, result: SettleResult::Lost });
        index
    }

    /// Fills in the results of the settles. Their outcomes become those of a decision that denies nothing.
    pub(crate) fn finish(&mut self, charges: &Charges, outcomes: &mut [Option<Outcome>]) {
        for settle in &mut self.0 {
            let charge = charges.charge(settle.charge);
            if let Some(outcome) = &mut outcomes[settle.charge] {
                settle.result = settle_outcome(charge, outcome, settle.nonce.is_some());
            }
        }
    }
}

/// Writes the key of the counter that took the estimate. Beside an estimate of another tier on its counter, it is the
/// key with the numbers of the limit ([`Charges::push`]), and the receipt has an item for each of the two.
fn write_settled_key(
    text: &mut String,
    write_key: impl FnOnce(&mut String),
    kernel: Kernel,
    receipt: Option<&Receipt>,
) {
    let start = text.len();
    write_key(text);
    if let Some(receipt) = receipt.filter(|receipt| receipt.has_several_items()) {
        let end = text.len();
        text.push_str(&kernel.numbers());
        if receipt.item(&text[start..]).is_none() {
            text.truncate(end);
        }
    }
}

/// What has to be booked.
fn difference(item: Option<&ReceiptItem>, actual: u64) -> Cost {
    let estimated = item.map_or(0, |item| item.units);
    match item {
        Some(item) if actual < estimated => Cost::undo(estimated - actual, item.grant),
        _ if actual > estimated => Cost::take(actual - estimated),
        _ => Cost::refund(0),
    }
}

/// What a settle did, by its outcome, which then has the report of a cost that fits.
fn settle_outcome(charge: &Charge, outcome: &mut Outcome, is_readable: bool) -> SettleResult {
    let DecidedBy::Store(CounterSnapshot { now_us, reading }) = outcome.decided_by else {
        return SettleResult::Lost;
    };
    let attempt = Attempt { now_us, cost: charge.cost };
    let is_made = outcome.verdict == Verdict::Fits;
    let settled = Attempt { now_us, cost: Cost::refund(0) };
    outcome.verdict = Verdict::Fits;
    outcome.report = charge.kernel.report(&reading, settled, Verdict::Fits);
    if charge.cost.refunded() > 0 {
        let has_returned = is_made && charge.kernel.has_returned(&reading, attempt);
        return if has_returned { SettleResult::Returned } else { SettleResult::Kept };
    }
    if is_readable { SettleResult::Charged } else { SettleResult::Unreadable }
}

impl Decision {
    /// The receipt of an admitted request that meets a limit with `settle`. It has an item for each charge to such a
    /// limit that fits, and that the store recorded. `nonce` is called only if there is a receipt.
    #[must_use]
    pub fn receipt(&self, nonce: impl FnOnce() -> u64) -> Option<Receipt> {
        if !self.plan.gives_receipt || self.overall == Code::OverLimit {
            return None;
        }
        let mut receipt = Receipt::new(nonce());
        for charged in self.plan.charged().filter(|charged| charged.limit.spec.settle) {
            let (key, charge) = self.plan.charges.get(charged.index);
            if let Some(grant) =
                self.outcomes.by_charge[charged.index].and_then(|granted| self.grant(charge, &granted))
            {
                receipt.add(key, charge.cost.taken(), grant);
            }
        }
        Some(receipt)
    }

    /// The grant, if the charge fits and the store has recorded it.
    fn grant(&self, charge: &Charge, granted: &Outcome) -> Option<Grant> {
        let DecidedBy::Store(CounterSnapshot { reading, .. }) = &granted.decided_by else { return None };
        let is_recorded =
            granted.verdict == Verdict::Fits && charge.is_recorded(granted.verdict, self.shadowed);
        let units = charge.cost.taken();
        if !is_recorded || units == 0 || charge.role == Role::Settle {
            return None;
        }
        charge.kernel.grant(reading, units)
    }

    /// The settle of the charge at `index`, if it is one.
    #[must_use]
    pub fn settle(&self, index: usize) -> Option<&Settle> {
        self.plan.settles.at(index)
    }
}
