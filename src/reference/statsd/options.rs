//! Where metrics are sent, and how.

use std::time::Duration;

use super::mogrifier::Mogrifiers;
use super::target::StatsdTarget;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsdFormat {
    /// Tags are parts of the names.
    Statsd,
    /// Tags follow the values.
    DogStatsd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdOptions {
    pub target: StatsdTarget,
    pub format: StatsdFormat,
    /// The time between two flushes of counters and gauges.
    pub flush_interval: Duration,
    /// On every metric. Names and values.
    pub tags: Vec<(String, String)>,
    /// DogStatsD only.
    pub mogrifiers: Mogrifiers,
}
