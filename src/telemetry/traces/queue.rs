//! The finished spans on their way to the collector.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::telemetry::metrics::TraceMeter;

/// Spans that may wait. About 8 MB, as a span has about 1 KB: what callers send is cut or left out above some hundred
/// bytes.
pub(super) const CAPACITY: usize = 8_192;

/// Takes spans and never waits: a full queue loses them.
#[derive(Debug)]
pub(super) struct SpanQueue {
    sender: Sender<SpanData>,
    meter: TraceMeter,
}

impl SpanQueue {
    pub(super) fn new(meter: TraceMeter) -> (Self, Receiver<SpanData>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self { sender, meter }, receiver)
    }
}

/// The task that sends the spans flushes the queue at the end, so there is nothing to do when the SDK asks for it.
impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.sender.try_send(span).is_err() {
            self.meter.lost(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}
