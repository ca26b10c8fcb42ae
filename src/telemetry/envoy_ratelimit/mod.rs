//! What the service exports like envoyproxy/ratelimit, beside its own metrics and log: the hits of limits and the
//! response times, their dotted names and families, statsd, and the lines of the log. Each counter of `metrics` makes
//! at most one call into this folder. The variables of envoyproxy/ratelimit are translated elsewhere, in
//! `src/reference`.

mod log_lines;
mod names;
mod statsd;

pub use names::{Stat, StatKind};
pub use statsd::{Mogrifier, Mogrifiers, Statsd, StatsdFormat, StatsdOptions, StatsdTarget};

pub(super) use log_lines::EnvoyRatelimitLines;
pub(super) use names::{Stats, error_type, stat_name, write_families};
