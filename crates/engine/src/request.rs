//! What a caller asks, independent of the transport.

use super::cost::Cost;
use super::period::Period;

/// Asks whether something may proceed. The answer has a status per descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Selects the rules.
    pub domain: String,
    /// Units for every descriptor without `hits` of its own; 0 means 1.
    pub hits_addend: u32,
    /// What is limited, in the order of the statuses in the answer.
    pub descriptors: Vec<Descriptor>,
    /// Who asks. Changes no decision.
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
        let hits = descriptor.hits.unwrap_or_else(|| u64::from(self.hits_addend.max(1)));
        if descriptor.is_refund { Cost::refund(hits) } else { Cost::take(hits) }
    }
}

/// A list of entries that names one thing to limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Matched in order, from the root of the rule tree. Without entries no rule matches.
    pub entries: Vec<Entry>,
    /// The override: a limit sent with the request, which replaces the limits of the rules.
    pub limit: Option<LimitOverride>,
    /// Units for this descriptor; `Some(0)` is a peek.
    pub hits: Option<u64>,
    /// Whether the hits are given back instead of taken.
    pub is_refund: bool,
}

/// A key and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// May be empty: only a wildcard without a key matches it.
    pub key: String,
    /// May be empty.
    pub value: String,
}

/// A limit that comes with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverride {
    /// Units per period; 0 blocks.
    pub requests_per_unit: u32,
    /// The period.
    pub period: Period,
}
