//! Loads rule files and resources into the engine's rules, with file, line and reason for each problem.
//!
//! Steps of a load: find files, decode, parse YAML, read drafts by the table of `keys`, lint each domain, apply
//! upgrades, compile in the engine. Entry points: [`load()`], [`load_resources`] for rules in messages, [`Reloader`]
//! for changing files. [`changed_limits()`] says what a change does to counters.
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
mod scope;
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
    CsvColumn, CsvColumnError, CsvColumns, CsvLines, ExceptionReloader, ExceptionScope, FileSummary,
    KindCounts, LiveRow, LoadedExceptions, NO_REASON, Origin, RowChanges, RowFault, check_against_rules,
    latest_window_end, load_exceptions, missing_in_rules, read_rows, utc_text, value_text,
};
pub use load::{
    AppliedUpgrades, DomainDocuments, LoadOptions, LoadedRules, RuleResource, load, load_resources,
    load_stream,
};
pub use nearest::nearest_name;
pub use problem::{Problem, Problems, shortened};
pub use reload::Reloader;
pub use show::{Description, derivation_text, describe, limit_text, rlconfig, schema};
pub use source::RuleDirectory;
pub use upgrade::{Upgrade, UpgradeColumn, UpgradedLimit};
