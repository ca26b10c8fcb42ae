//! The pass over a log: lines become requests, requests are sorted and decided, decisions are counted.
//!
//! Parsing and planning run on every core, block by block; the blocks come back in their order, and one thread sorts,
//! decides and counts. So the report does not depend on the number of threads.

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
