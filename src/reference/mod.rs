//! All that imitates envoyproxy/ratelimit: its variables, its metric names and statsd, its log format, its check of
//! rule files, and the command `migrate`. A user of the service's own settings meets none of it.

mod config_check;
mod log_format;
mod metrics;
mod migrate;
mod statsd;
mod variables;

pub(crate) use config_check::check_config;
pub(crate) use log_format::EnvoyRatelimitLines;
pub use metrics::Stat;
pub(crate) use metrics::{
    HitBounds, Readings, RuleHits, RuleHitsBinding, RuleHitsTable, stats, write_families,
};
pub(crate) use migrate::{MigrateArgs, migrate};
pub use statsd::{Mogrifier, Mogrifiers, Statsd, StatsdFormat, StatsdOptions, StatsdTarget};
pub use variables::{
    EnvironmentUse, LoadedSettings, ReferenceVariable, load_settings, load_settings_with, reference_variables,
};
