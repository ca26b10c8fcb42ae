//! Data of the console: what this process has done in the last 15 minutes, sampled from its counters once a second.
//! Nothing is stored on disk.
//!
//! `app` makes an [`Observation`] each second; [`Console::observe`] adds it to the history, finds marks and notices,
//! and sends the open streams an event. `state` has the types that are shown, which `ratelimitctl top` reads.

mod actions;
mod catalog;
mod denied;
mod excepted;
mod frame;
mod history;
mod limits;
mod live;
mod marks;
mod mask;
mod notices;
mod observation;
mod shapes;
mod state;
mod steps;
mod totals;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use engine::{HashKey, RuleSet};
use parking_lot::Mutex;
use strum::IntoStaticStr;
use tokio::sync::watch;

use frame::json_text;
use history::History;

pub use excepted::KeyException;
pub use live::LiveObserved;
pub use notices::{clock, rate_text};
pub use state::{
    ConsoleExceptions, ConsoleSample, ConsoleState, Level, Notice, RowsOfKind, RuleName, SCHEMA, ShownEntries,
};
pub use totals::SECONDS;

pub use actions::{ActionError, ConsoleActions, MOST_VALUES, RowId, RowStatus};
pub use denied::DeniedRow;
pub use frame::{Frames, LAST_FRAME};
pub use history::RuleSelection;
pub use mask::KeyEntry;
pub use observation::{
    Certificate, LastOutage, Observation, RejectedRules, RulesObserved, ServiceObserved, StoreObserved,
};

/// What stays constant while the process runs.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    pub instance: Instance,
    /// Link to the dashboard for all instances; empty: none.
    pub dashboard_url: String,
    pub needs: ValuesNeed,
    pub tag_key: HashKey,
    /// `false`: denials take effect.
    pub is_shadow_mode: bool,
}

/// The process, as named in the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub name: String,
    /// New at each start.
    pub id: String,
    /// Seconds since the epoch.
    pub started_at: u64,
}

/// What a caller must send to see the values of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ValuesNeed {
    OperatorToken,
    Token,
    /// No token is set, so nobody can.
    Never,
}

/// Shared by the sampler and the admin port.
#[derive(Debug)]
pub struct Console {
    history: Mutex<History>,
    frames: watch::Sender<Arc<str>>,
    tag_key: HashKey,
}

impl Console {
    pub fn new(options: ConsoleOptions) -> Self {
        let tag_key = options.tag_key;
        Self { history: Mutex::new(History::new(options)), frames: watch::Sender::default(), tag_key }
    }

    /// Adds a second's observation. Formats nothing unless a stream is open.
    pub fn observe(&self, observation: Observation) {
        let mut history = self.history.lock();
        let news = history.observe(observation);
        if self.frames.receiver_count() > 0 {
            self.frames.send_replace(history.frame(news));
        }
    }

    /// The state as JSON.
    pub fn state(&self, rules: RuleSelection) -> String {
        json_text(&self.history.lock().state(rules))
    }

    /// The events from now on, starting with the state.
    pub fn frames(&self) -> Frames {
        let mut history = self.history.lock();
        // Under the lock, so that no second is missed.
        let later = self.frames.subscribe();
        Frames::new(history.state_frame(), later)
    }

    fn mark_reset(&self) {
        self.history.lock().mark_reset();
    }

    /// Returns a counter key as it may be logged, by the current rules: masked, with the id that its row has or would
    /// have.
    pub fn logged(&self, rules: &RuleSet, key: &str) -> String {
        self.history.lock().denied.logged(rules, key)
    }

    /// Returns an exception's value as the console may show it: masked.
    pub fn masked_value(&self, domain: &str, key: &str, value: &str) -> String {
        mask::masked_value(&self.tag_key, domain, key, value)
    }

    pub fn row(&self, id: &RowId) -> Option<DeniedRow> {
        self.history.lock().row(id)
    }
}
