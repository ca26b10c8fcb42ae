//! The pass over a log: lines become requests, requests are sorted and decided, decisions are counted.
//!
//! Parsing and planning run on every core, block by block; the blocks come back in their order, and one thread sorts,
//! decides and counts. So the report does not depend on the number of threads.

mod agreement;
mod assemble;
mod curves;
mod key_table;
mod lane;
mod minutes;
mod observation;
mod options;
mod parse;
mod peaks;
mod pipeline;
mod positions;
mod side_by_side;
mod sorter;
mod space_saving;
mod tally;
mod top_keys;
mod verdict;

pub use curves::RecommendationBounds;
pub use lane::RuleSets;
pub use options::PassOptions;
pub use pipeline::{PassError, Progress, simulate};
