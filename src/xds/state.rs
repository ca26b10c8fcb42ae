//! State of the client, for the admin page. Times are microseconds since the epoch.

use std::sync::Arc;

use parking_lot::Mutex;

/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct XdsState(Arc<Mutex<XdsStatus>>);

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

impl XdsState {
    pub fn status(&self) -> XdsStatus {
        self.0.lock().clone()
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.0.lock().connected = connected;
    }

    pub(super) fn accepted(&self, version: &str) {
        let mut status = self.0.lock();
        status.version = Some(version.to_owned());
        status.refused = None;
    }

    pub(super) fn refused(&self, version: &str, reason: &str) {
        let refusal = Refusal { version: version.to_owned(), reason: reason.to_owned() };
        self.0.lock().refused = Some(refusal);
    }

    pub(super) fn failed(&self, reason: &str, at_us: u64) {
        self.0.lock().last_fault = Some(XdsFault { at_us, reason: reason.to_owned() });
    }
}
