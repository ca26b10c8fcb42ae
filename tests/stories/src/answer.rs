//! What a story is compared in: every number of an answer, as plain data.

use std::collections::BTreeMap;

/// The answer to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The id of the call.
    pub id: u32,
    pub is_over: bool,
    /// The wait of the whole request: `None` is never.
    pub retry_after_us: Option<u64>,
    /// One for each descriptor; `None` where no limit decided it.
    pub statuses: Vec<Option<Status>>,
    /// One for each decided counter, in the order of the descriptors.
    pub charges: Vec<Numbers>,
    /// By the label of the limit.
    pub announced: BTreeMap<String, String>,
    pub has_receipt: bool,
}

/// What decided a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub is_over: bool,
    pub label: String,
    /// `None` for an unlimited limit.
    pub remaining: Option<u64>,
}

/// The report of a charge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbers {
    pub label: String,
    pub is_over: bool,
    pub remaining: u64,
    /// `None` is never.
    pub retry_after_us: Option<u64>,
    pub reset_after_us: u64,
    pub next_after_us: u64,
    pub delay_us: u64,
    pub until_reset_us: u64,
}
