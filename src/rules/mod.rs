//! Rule files: YAML to the engine's rules, with file, line and reason for whatever is wrong with them.
//!
//! Knows YAML, the file system, and what operators may write. Decides nothing: matching, limits and keys are the
//! engine's. The way of a file: [`Source`] finds and reads it, `yaml` makes a tree of it, `fields` and `keys` check its
//! keys, `tree` and `limits` make drafts of rules, `lint` compares them, and the engine compiles them. [`Reloader`]
//! does it again whenever the files change.

mod describe;
mod draft;
mod fields;
mod keys;
mod limits;
mod lint;
mod load;
mod metadata;
mod pairs;
mod problem;
mod reload;
mod report;
mod rlconfig;
mod scalar;
mod schema;
mod source;
mod status;
mod tree;
mod words;

pub use describe::{Description, describe};
pub use load::{LoadOptions, Loaded, load};
pub use problem::{Place, Problem, Problems, Severity};
pub use reload::{CHECK_EVERY, Change, Reloader, watch};
pub use rlconfig::rlconfig;
pub use schema::schema;
pub use source::{Fingerprint, Source};
pub use status::{LastError, RulesStatus};
