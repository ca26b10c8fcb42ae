//! Rule files and resources: to the engine's rules, with file, line and reason for each problem.
//!
//! Knows YAML, the file system, and which keys a rule file may contain. Decides nothing: matching, limits and counter
//! keys belong to the engine. The steps: `source` finds and reads a file, `yaml` parses it to a tree, `read`
//! turns the tree into drafts of rules, `lint` compares the drafts with each other, `load` compiles them.
//! [`Reloader`] repeats this when the files change. `show` prints the result. Rules that come in messages are
//! resources: [`load_resources`] makes drafts of them, and the rest is the same.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod credentials;
mod keys;
mod lint;
mod load;
mod problem;
mod read;
mod reload;
mod show;
mod source;
mod status;
mod text;
mod upgrade;
pub mod yaml;

pub use credentials::is_like_credential;
pub use load::{
    AppliedUpgrades, DomainDocuments, LoadOptions, LoadedRules, load, load_resources, load_stream,
};
pub use problem::{Problem, Problems, escaped};
pub use read::{ResourceDescriptor, ResourceLimit, ResourceRules, RuleResource};
pub use reload::{CHECK_EVERY, Change, Reloader, watch};
pub use show::{Description, describe, rlconfig, schema};
pub use source::DirectoryOptions;
pub use status::{RulesStatus, UpgradeUse};
pub use upgrade::{FieldSource, Glob, Upgrade, UpgradedLimit};
