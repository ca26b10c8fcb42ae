//! The rules of the run, and their changes.

use std::path::{Path, PathBuf};

/// A change every this many seconds, so that the changes drift against the minutes of Redis.
const INTERVAL: u64 = 13;
/// Each third change is a file that cannot be read as rules.
const BROKEN: u64 = 3;

/// Keys of descriptors with a limit each; [`text`] has the limits.
pub const KEYS: [&str; 10] =
    ["fixed", "sliding", "log", "gcra", "queue", "bucket", "blocked", "shadow", "quota", "several"];

/// The rule file of the service.
pub struct RuleFile {
    path: PathBuf,
    changes: u64,
}

impl RuleFile {
    pub fn create(path: PathBuf) -> Self {
        std::fs::write(&path, text(0)).expect("a rule file");
        Self { path, changes: 0 }
    }

    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How many changes made a file that is not valid.
    pub fn broken(&self) -> u64 {
        self.changes / BROKEN
    }

    /// Replaces the file if a change is due in this second.
    pub fn change(&mut self, second: u64) {
        if second == 0 || !second.is_multiple_of(INTERVAL) {
            return;
        }
        self.changes += 1;
        let is_broken = self.changes.is_multiple_of(BROKEN);
        let text =
            if is_broken { "domain: soak\ndescriptors: [{ key: 1".to_owned() } else { text(self.changes) };
        let beside = self.path.with_extension("new");
        std::fs::write(&beside, text).expect("a writable directory");
        std::fs::rename(&beside, Path::new(&self.path)).expect("a writable directory");
    }
}

/// Valid rules. One limit and one name differ from change to change, so that counters and metrics of old rules end.
fn text(change: u64) -> String {
    let limit = 5 + change % 7;
    format!(
        "
domain: soak
descriptors:
  - {{ key: fixed, rate_limit: {{ unit: second, requests_per_unit: {limit}, on_store_failure: allow }} }}
  - {{ key: sliding, rate_limit: {{ unit: minute, requests_per_unit: 20, algorithm: sliding_window, on_store_failure: local }} }}
  - {{ key: log, rate_limit: {{ unit: minute, requests_per_unit: 10, algorithm: sliding_log, on_store_failure: local }} }}
  - {{ key: gcra, rate_limit: {{ unit: second, requests_per_unit: 3, algorithm: gcra, burst: 5, on_store_failure: deny }} }}
  - {{ key: queue, rate_limit: {{ unit: second, requests_per_unit: 2, algorithm: leaky_bucket, mode: queue }} }}
  - {{ key: bucket, rate_limit: {{ unit: minute, requests_per_unit: 30, algorithm: token_bucket, refill: interval, on_store_failure: local }} }}
  - {{ key: blocked, rate_limit: {{ unit: day, requests_per_unit: 0 }} }}
  - {{ key: shadow, shadow_mode: true, rate_limit: {{ unit: minute, requests_per_unit: 1, name: name_{change} }} }}
  - {{ key: quota, quota_mode: true, rate_limit: {{ unit: minute, requests_per_unit: 5, on_store_failure: allow }} }}
  - key: several
    rate_limits:
      - {{ unit: second, requests_per_unit: {limit}, algorithm: gcra, charging: prepaid }}
      - {{ unit: hour, requests_per_unit: 500, charging: postpaid }}
  - {{ key: changing, value: v_{change}, rate_limit: {{ unit: hour, requests_per_unit: 500 }} }}
"
    )
}
