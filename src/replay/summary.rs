//! What a replay came to.

use std::collections::BTreeMap;
use std::fmt;

use crate::engine::{Code, Decision, Verdict};

/// Requests, and over limit by rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests decided.
    pub requests: u64,
    /// Requests over limit.
    pub over_limit: u64,
    /// By rule: how often it was asked, and how often it was over.
    pub rules: BTreeMap<String, RuleCount>,
}

/// How often one rule was asked, and how often it was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// Times asked.
    pub asked: u64,
    /// Times over, shadow rules included.
    pub over_limit: u64,
}

impl Summary {
    pub(super) fn count(&mut self, decision: &Decision) {
        self.requests += 1;
        self.over_limit += u64::from(decision.overall == Code::OverLimit);
        for judged in decision.limit_results() {
            let over = u64::from(judged.outcome.verdict == Verdict::Over);
            // The label is copied once per rule, not once per request.
            match self.rules.get_mut(judged.limit.label.as_ref()) {
                Some(count) => {
                    *count = RuleCount { asked: count.asked + 1, over_limit: count.over_limit + over }
                }
                None => {
                    self.rules
                        .insert(judged.limit.label.to_string(), RuleCount { asked: 1, over_limit: over });
                }
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} requests, {} over limit", self.requests, self.over_limit)?;
        for (rule, count) in &self.rules {
            writeln!(f, "  {rule}: {} of {} over limit", count.over_limit, count.asked)?;
        }
        Ok(())
    }
}
