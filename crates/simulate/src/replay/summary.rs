//! The totals of a replay.

use std::collections::BTreeMap;
use std::fmt;

use engine::{Code, Decision, Verdict};

/// Requests decided and over limit, in total and by limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub requests: u64,
    pub over_limit: u64,
    /// Counts per limit, by the label of the limit.
    pub limits: BTreeMap<String, LimitCount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCount {
    pub decided: u64,
    /// Limits of shadow rules included.
    pub over_limit: u64,
}

impl Summary {
    pub(super) fn count(&mut self, decision: &Decision) {
        self.requests += 1;
        self.over_limit += u64::from(decision.overall == Code::OverLimit);
        for result in decision.limit_results() {
            let over = u64::from(result.outcome.verdict == Verdict::Over);
            // The label is copied once per limit, not once per request.
            match self.limits.get_mut(result.limit.label.as_ref()) {
                Some(count) => {
                    *count = LimitCount { decided: count.decided + 1, over_limit: count.over_limit + over }
                }
                None => {
                    self.limits
                        .insert(result.limit.label.to_string(), LimitCount { decided: 1, over_limit: over });
                }
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} requests, {} over limit", self.requests, self.over_limit)?;
        for (label, count) in &self.limits {
            writeln!(f, "  {label}: {} of {} over limit", count.over_limit, count.decided)?;
        }
        Ok(())
    }
}
