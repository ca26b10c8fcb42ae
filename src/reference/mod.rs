//! All that imitates envoyproxy/ratelimit: its variables, its metric names and statsd, its log format, its check of
//! rule files, and the command `migrate`. A user of the service's own settings meets none of it.

pub mod client;
pub mod config_check;
mod flags;
pub(crate) mod log_format;
pub mod metrics;
pub mod migrate;
pub mod statsd;
mod text_format;
pub mod variables;
