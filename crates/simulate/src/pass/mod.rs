//! The pass over a log: turns lines into requests, sorts and decides them, and counts the decisions.
//!
//! Parsing and planning run on every core, block by block. Blocks return in order, and one thread sorts, decides and
//! counts, so the report does not depend on the number of threads.

mod agreement;
mod assemble;
mod counters;
mod curves;
mod decide;
mod key_table;
mod minutes;
mod options;
mod parse;
mod peaks;
mod pipeline;
mod planned;
mod positions;
mod side_by_side;
mod sorter;
mod sweep;
mod tally;
mod top_keys;
mod tried;
mod tried_counters;
mod untested;

pub use options::{PassOptions, RecommendationBounds, RuleSets, Sample};
pub use pipeline::{PassError, simulate};
