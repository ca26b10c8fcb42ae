//! The state of the rules for the admin page: the rules in force, the time when they were loaded, and the last error.

use super::load::{DomainDocuments, LoadedRules};
use super::problem::Problems;

/// The limits that the page lists for each row of the table of upgrades.
const MAX_UPGRADED_LISTED: usize = 20;

/// The state of the rules. Times are microseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesStatus {
    /// Number of files, or of resources, in force.
    pub files: usize,
    /// Number of rules in force.
    pub rules: usize,
    /// Domains in force, in the order of the files, with their files or resources.
    pub domains: Vec<DomainDocuments>,
    /// When the rules in force were loaded.
    pub loaded_at_us: u64,
    /// Why the newest state of the files is not in force; `None` if it is.
    pub last_error: Option<LastError>,
    /// Whether the files changed and are not read yet: a writer may not have finished.
    pub has_unread_change: bool,
    /// Number of loads that succeeded: the generation of the rules in force.
    pub loads_ok: u64,
    /// Number of loads that failed.
    pub loads_failed: u64,
    /// Warnings about the files in force.
    pub warnings: Problems,
    /// For each row of the table of upgrades, the limits that it has changed.
    pub upgrades: Vec<UpgradeUse>,
}

/// The limits that one row of the table of upgrades has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpgradeUse {
    pub limits: usize,
    /// The labels of the first ones.
    pub first: Vec<String>,
}

/// Why the newest state of the files is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When the load failed.
    pub at_us: u64,
    /// All problems, warnings included.
    pub problems: Problems,
}

impl RulesStatus {
    /// Whether the newest state of the files is in force, as far as the last check of the files tells.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        self.last_error.is_none() && !self.has_unread_change
    }

    /// Records that `loaded` was put in force at `now_us`.
    pub fn record_loaded(&mut self, loaded: &LoadedRules, now_us: u64) {
        *self = Self {
            files: loaded.files,
            rules: loaded.rules.rules().len(),
            domains: loaded.documents.clone(),
            loaded_at_us: now_us,
            last_error: None,
            has_unread_change: false,
            loads_ok: self.loads_ok + 1,
            loads_failed: self.loads_failed,
            warnings: loaded.warnings.clone(),
            upgrades: upgrade_uses(loaded),
        };
    }

    /// Records that a load failed at `now_us`.
    pub fn record_failed(&mut self, problems: Problems, now_us: u64) {
        self.loads_failed += 1;
        self.has_unread_change = false;
        self.last_error = Some(LastError { at_us: now_us, problems });
    }
}

fn upgrade_uses(loaded: &LoadedRules) -> Vec<UpgradeUse> {
    let mut uses = vec![UpgradeUse::default(); loaded.upgrades.rows];
    for upgraded in &loaded.upgrades.limits {
        let limit = loaded.rules.limits().get(upgraded.limit.0 as usize);
        if let (Some(used), Some(limit)) = (uses.get_mut(upgraded.row), limit) {
            used.limits += 1;
            if used.first.len() < MAX_UPGRADED_LISTED {
                used.first.push(format!("{}: {}", limit.label, upgraded.sources));
            }
        }
    }
    uses
}
