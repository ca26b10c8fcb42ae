//! When a limit pauses a value: after repeated denials (`penalty`), or because a caller reports a pause (`feedback`).
//!
//! A pause is a row of the exceptions that blocks the value until its end. Neither option changes the limit's own
//! decisions or its counters.

use std::sync::Arc;

use strum::{EnumString, IntoStaticStr, VariantNames};

use super::algorithm::{Blocked, Kernel, SlidingLog};

/// Which value is paused, and for which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseTarget {
    /// The key of an entry of the rule: its value is paused.
    pub of: Arc<str>,
    pub scope: PauseScope,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum PauseScope {
    /// The rule of the limit.
    #[default]
    Rule,
    /// Every rule of the domain, and descriptors without a rule.
    Domain,
}

/// Repeated denials by a limit ban the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Penalty {
    pub target: PauseTarget,
    /// This many denials within `within_us` are a ban: 1 to 1,000.
    pub after: u32,
    /// 1 s to 1 d.
    pub within_us: u64,
    /// Length of the first ban, at least `within_us`. Otherwise a ban would end before its denials are forgotten.
    pub for_us: u64,
    /// Each further ban is this many times longer: 1 to 10.
    pub grow: u32,
    /// Longest ban, at least `for_us`. A value without a ban for this long starts again with `for_us`.
    pub max_us: u64,
}

impl Penalty {
    /// Counts denials, one unit each. The one that does not fit is a ban.
    pub fn kernel(&self) -> Kernel {
        match u64::from(self.after.saturating_sub(1)) {
            0 => Kernel::Blocked(Blocked::new(self.within_us)),
            before => Kernel::SlidingLog(SlidingLog::new(before, self.within_us)),
        }
    }
}

/// Callers may pause a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    pub target: PauseTarget,
    /// Longest pause: 1 s to 1 d.
    pub max_us: u64,
}
