//! The options of a pass.

use std::num::NonZeroUsize;

use super::curves::RecommendationBounds;
use super::sample::Sample;
use crate::log::Format;
use crate::report::FileDigest;

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
