//! All that imitates envoyproxy/ratelimit: its variables, its metric names and statsd, its log format, its check of
//! rule files, and the command `migrate`. A user of the service's own settings meets none of it.

pub(crate) mod config_check;
mod log_format;
pub(crate) mod metrics;
pub(crate) mod migrate;
pub mod statsd;
mod variables;

pub(crate) use log_format::EnvoyRatelimitLines;
pub use variables::{
    EnvironmentUse, LoadedSettings, ReferenceVariable, load_settings, load_settings_with, reference_variables,
};
