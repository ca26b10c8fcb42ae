//! The spans on their way to a collector.

use prometheus::{IntCounter, Registry, Result};

use super::family::counter;

/// Counts spans.
#[derive(Clone, Debug)]
pub struct TraceMeter {
    sent: IntCounter,
    lost: IntCounter,
}

impl TraceMeter {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let lost = "Spans that were not sent: the collector is not reached, too slow, or refused them";
        Ok(Self {
            sent: counter(registry, "ratelimitd_trace_spans_sent_total", "Spans that the collector took")?,
            lost: counter(registry, "ratelimitd_trace_spans_lost_total", lost)?,
        })
    }

    pub fn sent(&self, spans: u64) {
        self.sent.inc_by(spans);
    }

    pub fn lost(&self, spans: u64) {
        self.lost.inc_by(spans);
    }
}
