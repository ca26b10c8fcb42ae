//! A settle: the caller of an admitted request returns its receipt with the real cost, and the difference to the
//! estimate is booked. Nothing is stored for it.
//!
//! A real cost above the estimate records the difference in any case. A lower one gives the difference back to the
//! grant of the estimate ([`Cost::undo`]). A limit without an item in the receipt recorded nothing, so it is charged
//! all of the real cost.

use crate::limit::Limit;
use crate::limit::algorithm::Kernel;
use crate::limit::cost::Cost;
use crate::limit::role::Role;
use crate::limit::spec::Charging;
use crate::request::plan::charge::{Charge, Charges};
use crate::request::receipt::{Receipt, ReceiptItem, UnreadableReceipt};

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

impl Settle {
    /// Whether the receipt could be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.nonce.is_some()
    }
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

    /// The settles, to fill in their results.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Settle> {
        self.0.iter_mut()
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
