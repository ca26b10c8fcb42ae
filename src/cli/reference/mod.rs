//! The two tools of `envoyproxy/ratelimit`, under their names and with their flags and exit codes.

pub(super) mod client;
pub(super) mod config_check;
mod flags;
mod text_format;
