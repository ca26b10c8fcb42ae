//! What a caller asks, independent of the transport: descriptors, and the cost of each. The files below lead from a
//! request to its decision: `wire`, `plan`, `store`, `decision`.

pub(crate) mod decision;
pub(crate) mod plan;
pub(crate) mod receipt;
pub(crate) mod store;
pub mod wire;

use self::receipt::{Receipt, UnreadableReceipt};
use crate::limit::cost::Cost;
use crate::limit::key::Entry;
use crate::limit::period::Period;

/// Asks whether something may proceed. The answer has a status per descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of the domain, which selects the rules.
    pub domain: String,
    /// Units for every descriptor without `hits` of its own; 0 means 1.
    pub hits_addend: u32,
    /// What is limited, in the order of the statuses in the answer.
    pub descriptors: Vec<Descriptor>,
    /// The connection of the request, for the turns of a store's queue. It changes no decision.
    pub caller: Caller,
}

/// The number of the connection that a request came on. A store with a queue serves callers in turns, so that the
/// requests of one do not delay those of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller(pub u32);

impl Request {
    /// The cost of one of this request's descriptors.
    #[must_use]
    pub fn cost(&self, descriptor: &Descriptor) -> Cost {
        let hits = self.hits(descriptor);
        if descriptor.is_refund { Cost::refund(hits) } else { Cost::take(hits) }
    }

    /// The units of one of this request's descriptors, to take or to give back.
    pub(crate) fn hits(&self, descriptor: &Descriptor) -> u64 {
        descriptor.hits.unwrap_or_else(|| u64::from(self.hits_addend.max(1)))
    }
}

/// A list of entries that names one thing to limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The entries, which are matched in order from the root of the rule tree. Without entries no rule matches.
    pub entries: Vec<Entry>,
    /// The override: a limit sent with the request, which replaces the limits of the rules.
    pub limit: Option<LimitOverride>,
    /// Units for this descriptor; `Some(0)` is a peek.
    pub hits: Option<u64>,
    /// Whether the hits are given back instead of taken.
    pub is_refund: bool,
    /// Whether the hits are the whole cost of a request that no check came before, so that a limit with `reserve` takes
    /// all of them: so are the requests that a map makes of a call to `/check` or of a line of a log.
    pub is_whole_cost: bool,
    /// The receipt of an earlier request, whose real cost `hits` are. Such a descriptor is a settle: only the
    /// difference to what the receipt says is booked, and nothing is denied. `is_refund` is then ignored.
    pub receipt: Option<Box<Result<Receipt, UnreadableReceipt>>>,
}

/// A limit that comes with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// Units per period; 0 blocks.
    pub requests_per_unit: u32,
    pub period: Period,
}
