//! What the admin page shows of the rules: what is in force since when, and what went wrong since.

use super::load::Loaded;
use super::problem::{Problem, Problems};

/// The state of the rules. Times are microseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesStatus {
    /// Files in force.
    pub files: usize,
    /// Rules in force.
    pub rules: usize,
    /// Domains in force, in order.
    pub domains: Vec<String>,
    /// When the rules in force were loaded.
    pub loaded_at_us: u64,
    /// Counts the rule sets that were put in force; 0 before the first.
    pub generation: u64,
    /// What kept a later state of the files from being put in force; `None` when the newest state is in force.
    pub last_error: Option<LastError>,
    /// How often the files could be used.
    pub loads_ok: u64,
    /// How often they could not.
    pub loads_failed: u64,
    /// What is odd about the files in force.
    pub warnings: Vec<Problem>,
}

/// Why the newest state of the files is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When it was found.
    pub at_us: u64,
    /// All of it.
    pub problems: Problems,
}

impl RulesStatus {
    /// Takes down that `loaded` was put in force at `now_us`.
    pub fn note_loaded(&mut self, loaded: &Loaded, now_us: u64) {
        *self = Self {
            files: loaded.files,
            rules: loaded.rules.rules().len(),
            domains: loaded.specs.iter().map(|spec| spec.domain.clone()).collect(),
            loaded_at_us: now_us,
            generation: self.generation + 1,
            last_error: None,
            loads_ok: self.loads_ok + 1,
            loads_failed: self.loads_failed,
            warnings: loaded.warnings.clone(),
        };
    }

    /// Takes down that the files could not be used at `now_us`.
    pub fn note_failed(&mut self, problems: Problems, now_us: u64) {
        self.loads_failed += 1;
        self.last_error = Some(LastError { at_us: now_us, problems });
    }
}
