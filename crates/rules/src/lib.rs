//! Rule files and resources: to the engine's rules, with file, line and reason for each problem.
//!
//! Knows YAML, the file system, time zones, and which keys a rule file may contain. Decides nothing: matching, limits
//! and counter keys belong to the engine.
//!
//! `load` takes the steps: `source` finds the files and reads their bytes, `text` decodes them, `yaml` parses the text
//! to a tree, `read` turns the tree into drafts by the table of `keys` (the limits of a draft are those of the engine,
//! built once), `lint` checks each domain as a whole, `upgrade` changes limits as the settings say, and the
//! engine compiles the drafts. Rules that come in messages are resources: [`load_resources`] reads drafts from them,
//! and the other steps are the same.
//!
//! [`Reloader`] repeats this when the files change; [`changed_limits()`] tells what a change does to counters.
//! `problem` has the errors and warnings of all steps, `show` explains rules and requests.
#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod calendar;
mod changed_limits;
mod credentials;
mod exceptions;
mod file_bytes;
mod keys;
mod lint;
mod load;
mod mistyped;
mod nearest;
mod problem;
mod read;
mod reload;
mod show;
mod source;
mod text;
mod upgrade;
pub mod yaml;

pub use base::Change;
pub use calendar::{CalendarOptions, CalendarYears, local_time, time_zone_name};
pub use changed_limits::{ChangedLimit, KeptCounters, changed_limits};
pub use credentials::is_like_credential;
pub use exceptions::{
    ExceptionReloader, ExceptionScope, FileSummary, KindCounts, LoadedExceptions, RowChanges,
    check_against_rules, load_exceptions,
};
pub use load::{
    AppliedUpgrades, DomainDocuments, LoadOptions, LoadedRules, load, load_resources, load_stream,
};
pub use nearest::nearest_name;
pub use problem::{Problem, Problems};
pub use read::{ResourceDescriptor, ResourceLimit, ResourceRules, RuleResource};
pub use reload::Reloader;
pub use show::{Description, derivation_text, describe, rlconfig, schema};
pub use source::RuleDirectory;
pub use upgrade::{Upgrade, UpgradeColumn, UpgradedLimit};
