//! Settles: the caller of an admitted request returns its receipt with the real cost; the difference is booked.
//!
//! Nothing is stored for it. A higher real cost always records the difference; a lower one returns the difference to
//! the estimate's grant ([`Cost::undo`]). A limit without an item in the receipt recorded nothing, so it is charged in
//! full. With concurrency a settle releases the slot in the receipt, whatever the real cost.

use crate::limit::Limit;
use crate::limit::algorithm::{Cost, Kernel};
use crate::limit::spec::Charging;
use crate::request::plan::charge::{Charge, Charges, Role};
use crate::request::receipt::{Receipt, ReceiptItem, UnreadableReceipt};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    pub(crate) charge: usize,
    /// `None` for an unreadable receipt.
    nonce: Option<u64>,
    /// Units that the estimate recorded; `None` without an item in the receipt.
    pub estimated: Option<u64>,
    /// Units of the real cost.
    pub actual: u64,
    pub result: SettleResult,
}

impl Settle {
    pub(crate) fn is_readable(&self) -> bool {
        self.nonce.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleResult {
    /// The real cost is charged: its excess over the estimate was recorded.
    Charged,
    /// The estimate's excess over the real cost was returned, minus what had come back with time; or the slot was
    /// released.
    Returned,
    /// Nothing was returned: the window is over, or all of it had come back with time; or the slot was not open.
    Kept,
    /// The receipt is unreadable, so the whole real cost was recorded.
    Unreadable,
    /// The store did not answer. The estimate stays, unless the store settled nevertheless.
    Lost,
}

/// The receipt that a caller returns, and the units of the real cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned<'r> {
    pub(crate) receipt: &'r Result<Receipt, UnreadableReceipt>,
    pub(crate) actual: u64,
    /// `true` for a hold's commit, whose descriptors are separate costs: their sum counts.
    pub(crate) is_hold: bool,
}

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

    /// Adds the settle of a counter to the request's charges and returns the index of its charge. If the request
    /// already has this receipt for this counter, the larger real cost counts.
    pub(crate) fn add(
        &mut self,
        charges: &mut Charges,
        (limit, kernel): (&Limit, Kernel),
        Returned { receipt, actual, is_hold }: Returned<'_>,
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
        // Two unreadable receipts may be different ones.
        let is_same = |other: &&mut Settle| {
            nonce.is_some() && other.nonce == nonce && charges.get(other.charge).0 == key
        };
        if let Some(settle) = self.0.iter_mut().find(is_same) {
            settle.actual =
                if is_hold { settle.actual.saturating_add(actual) } else { settle.actual.max(actual) };
            charges.pop();
            charges.set_cost(settle.charge, difference((limit, kernel), item, settle.actual));
            return settle.charge;
        }
        charges.set_cost(index, difference((limit, kernel), item, actual));
        let estimated = item.map(|item| item.units);
        self.0.push(Settle { charge: index, nonce, estimated, actual, result: SettleResult::Lost });
        index
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Settle> {
        self.0.iter_mut()
    }
}

/// Writes the key of the counter that took the estimate. If the receipt also has an estimate of another tier on the
/// plain key, this is the key with the limit's parameters ([`Charges::push`]), and each key has its own item.
pub(super) fn write_settled_key(
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

fn difference((limit, kernel): (&Limit, Kernel), item: Option<&ReceiptItem>, actual: u64) -> Cost {
    if let Kernel::Slots(_) = kernel {
        return item.map_or(Cost::refund(0), |item| Cost::undo(1, item.grant));
    }
    let estimated = item.map_or(0, |item| item.units);
    match item {
        Some(item) if actual < estimated && limit.spec.gives_back() => {
            Cost::undo(estimated - actual, item.grant)
        }
        _ if actual > estimated => Cost::take(actual - estimated),
        _ => Cost::refund(0),
    }
}
