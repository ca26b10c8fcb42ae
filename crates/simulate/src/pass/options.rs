//! What a pass decides by, and how.

use std::num::NonZeroUsize;

use engine::RuleSet;

use super::sample::Sample;
use crate::log::Format;
use crate::report::FileDigest;
use crate::variants::Variant;

/// The rule sets that decide every request.
#[derive(Clone, Debug)]
pub struct RuleSets {
    pub judged: RuleSet,
    pub in_force: Option<RuleSet>,
    /// The judged rules with every limit as another algorithm.
    pub variants: Vec<Variant>,
}

impl RuleSets {
    /// The judged rules, the rules in force, the variants.
    pub(super) fn all(&self) -> impl Iterator<Item = &RuleSet> {
        let variants = self.variants.iter().map(|variant| &variant.rules);
        [&self.judged].into_iter().chain(&self.in_force).chain(variants)
    }
}

/// How to read a log, and what to report.
#[derive(Clone, Debug)]
pub struct PassOptions {
    /// `None`: recognized from the first lines of each file.
    pub format: Option<Format>,
    /// How much later than it began a request may be in the log.
    pub reorder_us: u64,
    /// Threads that parse lines.
    pub threads: NonZeroUsize,
    /// The requests to decide.
    pub sample: Sample,
    /// Keys in the report are not hashed.
    pub show_keys: bool,
    /// Find out what other limits would do.
    pub what_if: bool,
    /// Recommend limits; needs `what_if`.
    pub recommend: Option<RecommendationBounds>,
    /// For the report only.
    pub command_line: Vec<String>,
    pub digests: Vec<FileDigest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecommendationBounds {
    pub max_keys_ppm: u64,
    pub max_good_denied_ppm: u64,
    pub headroom_percent: u64,
}

impl Default for RecommendationBounds {
    /// 0.1 % of keys, 0.01 % of good requests, a fifth of head-room.
    fn default() -> Self {
        Self { max_keys_ppm: 1_000, max_good_denied_ppm: 100, headroom_percent: 120 }
    }
}
