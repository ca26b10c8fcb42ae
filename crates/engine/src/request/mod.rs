//! What a caller asks, independent of the transport: descriptors and their costs.
//!
//! A request passes through `wire`, `plan`, `store` and `decision`.

pub(crate) mod decision;
pub(crate) mod hold;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod receipt;
pub(crate) mod store;
pub mod wire;

use self::pause::{PAUSE_KEY, Pause};
use self::receipt::{RECEIPT_KEY, RENEW_KEY, Receipt, UnreadableReceipt};
use crate::limit::algorithm::Cost;
use crate::limit::key::Entry;
use crate::limit::period::Period;

/// Asks if an action may proceed. The answer has a status per descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Selects the rules.
    pub domain: String,
    /// Units for every descriptor without its own `hits`; 0 means 1.
    pub hits_addend: u32,
    /// In the order of the statuses in the answer.
    pub descriptors: Vec<Descriptor>,
    /// The request's connection, for fair queueing in a store. Does not affect decisions.
    pub caller: Caller,
}

/// The number of a request's connection. A store with a queue serves connections in turn, so that one does not delay
/// another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller(pub u32);

impl Request {
    pub fn cost(&self, descriptor: &Descriptor) -> Cost {
        let hits = self.hits(descriptor);
        if descriptor.is_refund { Cost::refund(hits) } else { Cost::take(hits) }
    }

    /// Makes the request reserve for a hold or, with the reservation's receipt, commit it.
    pub fn set_hold(&mut self, receipt: Option<&Receipt>) {
        for descriptor in &mut self.descriptors {
            (descriptor.is_hold, descriptor.is_whole_cost) = (true, true);
            descriptor.attached = receipt.map(|receipt| Box::new(Attached::Receipt(Ok(receipt.clone()))));
        }
    }

    /// Units to take or return.
    pub(crate) fn hits(&self, descriptor: &Descriptor) -> u64 {
        descriptor.hits.unwrap_or_else(|| u64::from(self.hits_addend.max(1)))
    }
}

/// What to limit, as in Envoy: entries such as `user=alice`, from general to specific.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Matched in order from the root of the rule tree. Without entries no rule matches.
    pub entries: Vec<Entry>,
    /// A limit sent with the request, which replaces the limits of the rules.
    pub limit: Option<LimitOverride>,
    /// Units for this descriptor; `Some(0)` is a peek.
    pub hits: Option<u64>,
    /// `true` if the hits are returned instead of taken.
    pub is_refund: bool,
    /// `true` if the hits are the whole cost of a request without an earlier check, so a limit with `reserve` takes all
    /// of them. Maps set this for calls to `/check` and lines of a log.
    pub is_whole_cost: bool,
    /// `true` for a part of a hold ([`Request::set_hold`]): charges are prepaid, and a receipt settles every limit.
    pub is_hold: bool,
    /// What the last entry says if it names no value. Of these, only a renewal can deny.
    pub attached: Option<Box<Attached>>,
}

/// Keys of entries that do not name a value: the last entry of a descriptor. Rules cannot match them.
pub const RESERVED_KEYS: [&str; 3] = [RECEIPT_KEY, PAUSE_KEY, RENEW_KEY];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    /// The receipt of an earlier request whose real cost is the descriptor's hits. Such a descriptor is a settle: it
    /// books only the difference to the receipt, and ignores `is_refund`.
    Receipt(Result<Receipt, UnreadableReceipt>),
    /// The receipt of an earlier request, whose slots it keeps. Limits of another kind are left out, and hits do not
    /// matter.
    Renewal(Result<Receipt, UnreadableReceipt>),
    /// Reports a pause requested by a third party; `None` if it is unreadable. The descriptor costs nothing, whatever
    /// its hits.
    Pause(Option<Pause>),
}

impl Attached {
    /// Reads an entry with one of the [`RESERVED_KEYS`].
    pub(crate) fn of_entry(entry: &Entry) -> Self {
        match entry.key.as_str() {
            PAUSE_KEY => Self::Pause(Pause::parse(&entry.value)),
            RENEW_KEY => Self::Renewal(entry.value.parse()),
            _ => Self::Receipt(entry.value.parse()),
        }
    }
}

impl Descriptor {
    /// `Some` if the descriptor is a settle.
    pub fn receipt(&self) -> Option<&Result<Receipt, UnreadableReceipt>> {
        if let Some(Attached::Receipt(receipt)) = self.attached.as_deref() { Some(receipt) } else { None }
    }

    /// `Some` if the descriptor is a renewal.
    pub fn renewal(&self) -> Option<&Result<Receipt, UnreadableReceipt>> {
        if let Some(Attached::Renewal(receipt)) = self.attached.as_deref() { Some(receipt) } else { None }
    }

    /// `Some` if the descriptor reports a pause.
    pub fn pause(&self) -> Option<Option<Pause>> {
        if let Some(Attached::Pause(pause)) = self.attached.as_deref() { Some(*pause) } else { None }
    }
}

/// A limit sent with a request. It never shares a counter with a rule's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// Units per period; 0 blocks.
    pub requests_per_unit: u32,
    pub period: Period,
}
