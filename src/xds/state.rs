//! State of the client, for the admin page. Times are microseconds since the epoch.

use std::sync::Arc;

use parking_lot::Mutex;

/// Clones share the status.
pub type XdsState = Arc<Mutex<XdsStatus>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdsStatus {
    /// `true` while a stream is open.
    pub connected: bool,
    /// Version of the last accepted answer; `None` if there was none.
    pub version: Option<String>,
    /// The last answer, if it was refused.
    pub refused: Option<Refusal>,
    /// Why the last attempt or stream ended.
    pub last_fault: Option<XdsFault>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub version: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsFault {
    pub at_us: u64,
    pub reason: String,
}
