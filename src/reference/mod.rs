//! All that imitates envoyproxy/ratelimit: its variables, its metric names and statsd, its log format, its check of
//! rule files, and the command `migrate`. A user of the service's own settings meets none of it.

pub mod config_check;
pub(crate) mod log_format;
pub mod metrics;
pub mod migrate;
pub mod statsd;
pub mod variables;
