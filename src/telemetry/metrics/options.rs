//! The parameters of the metrics.

use super::extra_tags::ExtraTags;
use super::response_times::ResponseTimeUnit;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsOptions {
    /// The share of a limit, in millionths, above which a hit counts as near it.
    pub near_limit_ppm: u32,
    /// On every metric.
    pub extra_tags: ExtraTags,
    /// The unit of envoyproxy/ratelimit's histogram.
    pub response_time: ResponseTimeUnit,
    /// At most this many series with values of requests for each rule.
    pub values_per_rule: usize,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            near_limit_ppm: 800_000,
            extra_tags: ExtraTags::default(),
            response_time: ResponseTimeUnit::default(),
            values_per_rule: 1_000,
        }
    }
}
