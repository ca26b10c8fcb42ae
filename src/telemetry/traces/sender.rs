//! Sends spans in batches, each within a deadline. After an error there is a pause, in which spans are lost. No call
//! waits for it.

use std::fmt;
use std::time::Duration;

use base::log_throttle::LogThrottle;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanLimits, SpanProcessor};
use tls::ClientTlsError;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::call_span::Tracer;
use super::exporter::Exporter;
use super::options::{ServiceIdentity, TracesOptions};
use crate::post::HttpTarget;
use crate::telemetry::metrics::TraceMeter;

/// Maximum spans per request to the collector.
const BATCH: usize = 512;
/// How long the first span of a batch waits for more.
const GATHER_FOR: Duration = Duration::from_millis(200);
/// What is queued when the process ends is sent for this long.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// Pause after the first error; each further one doubles it, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

pub struct Traces {
    endpoint: HttpTarget,
    spans: Receiver<SpanData>,
    resource: ResourceAttributesWithSchema,
    exporter: Exporter,
    timeout: Duration,
    meter: TraceMeter,
    throttle: LogThrottle,
    pause: Duration,
    /// Spans are lost before this time.
    retry_at: Option<Instant>,
    /// Keeps the tracers alive: without their provider they create no spans.
    _provider: SdkTracerProvider,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Traces {
    /// # Errors
    /// If the CAs of a collector with TLS are invalid.
    pub fn new(options: TracesOptions, meter: TraceMeter) -> Result<(Tracer, Self), ClientTlsError> {
        let exporter = Exporter::new(&options)?;
        let (queue, spans) = SpanQueue::new(meter.clone());
        let resource = resource(options.service);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue)
            // A caller's decision wins. The share is exact to a millionth.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
                f64::from(options.sampled_ppm) / 1_000_000.0,
            ))))
            // Explicit, because the SDK would read limits from the environment.
            .with_span_limits(SpanLimits::default())
            .with_resource(resource.clone())
            .build();
        let scope =
            InstrumentationScope::builder("ratelimitd").with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = Tracer::new(provider.tracer_with_scope(scope));
        let traces = Self {
            endpoint: options.endpoint,
            spans,
            resource: ResourceAttributesWithSchema::from(&resource),
            exporter,
            timeout: options.timeout,
            meter,
            throttle: LogThrottle::default(),
            pause: FIRST_PAUSE,
            retry_at: None,
            _provider: provider,
        };
        Ok((tracer, traces))
    }

    /// Sends until `stop`, and then the rest, within 2 s.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::new();
        while let Some(received) = stop.run_until_cancelled(self.spans.recv_many(&mut batch, BATCH)).await {
            if received < BATCH {
                stop.run_until_cancelled(sleep(GATHER_FOR)).await;
                self.fill(&mut batch);
            }
            // A shutdown meanwhile leaves the batch a part of the time for the end.
            let deadline = self.timeout;
            let is_sent = async {
                tokio::select! {
                    () = self.send(std::mem::take(&mut batch), deadline) => true,
                    () = async { stop.cancelled().await; sleep(FLUSH_WITHIN / 2).await } => false,
                }
            };
            if !is_sent.await {
                break;
            }
        }
        let until = Instant::now() + FLUSH_WITHIN / 2;
        loop {
            self.fill(&mut batch);
            if batch.is_empty() {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            self.send(std::mem::take(&mut batch), left.min(self.timeout)).await;
        }
    }

    fn fill(&mut self, batch: &mut Vec<SpanData>) {
        while batch.len() < BATCH {
            let Ok(span) = self.spans.try_recv() else { return };
            batch.push(span);
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>, within: Duration) {
        let unsent = Unsent { spans: batch.len() as u64, meter: self.meter.clone() };
        if self.retry_at.is_some_and(|retry_at| Instant::now() < retry_at) {
            return;
        }
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let request = ExportTraceServiceRequest { resource_spans };
        let exported = timeout(within, self.exporter.export(request)).await;
        match exported.unwrap_or_else(|_late| Err("no answer in time".to_owned())) {
            Ok(answer) => {
                (self.retry_at, self.pause) = (None, FIRST_PAUSE);
                let refused = unsent.all_but_refused(&answer);
                if refused > 0 {
                    self.log_lost(refused, "the collector refused them");
                }
            }
            Err(reason) => {
                self.retry_at = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.exporter.reconnect();
                self.log_lost(unsent.spans, &reason);
            }
        }
    }

    fn log_lost(&self, spans: u64, reason: &str) {
        if let Some(times) = self.throttle.count() {
            let endpoint = &self.endpoint;
            tracing::warn!(%endpoint, times, spans, last = reason, "cannot send spans to the collector");
        }
    }
}

/// Maximum spans that can wait. About 8 MB, at 1 KB per span: what callers send is cut or left out above some hundred
/// bytes.
const CAPACITY: usize = 8_192;

/// Queues spans without waiting: a full queue drops them.
#[derive(Debug)]
struct SpanQueue {
    sender: Sender<SpanData>,
    meter: TraceMeter,
}

impl SpanQueue {
    fn new(meter: TraceMeter) -> (Self, Receiver<SpanData>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self { sender, meter }, receiver)
    }
}

/// The sending task flushes the queue at the end, so nothing is left to do when the SDK asks for a flush.
impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.sender.try_send(span).is_err() {
            self.meter.lost.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Spans that are lost unless they are sent, also if the attempt is abandoned.
struct Unsent {
    spans: u64,
    meter: TraceMeter,
}

impl Unsent {
    /// Records that the collector took all spans except those that it rejected. Returns the number of rejected spans.
    fn all_but_refused(mut self, answer: &ExportTraceServiceResponse) -> u64 {
        let refused = answer.partial_success.as_ref().map_or(0, |partial| partial.rejected_spans);
        let refused = u64::try_from(refused).unwrap_or(0).min(self.spans);
        self.meter.sent.inc_by(self.spans - refused);
        self.spans = refused;
        refused
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.meter.lost.inc_by(self.spans);
    }
}

fn resource(ServiceIdentity { name, namespace, instance_id }: ServiceIdentity) -> Resource {
    let instance_id = instance_id.unwrap_or_else(|| uuid(fastrand::u128(..)));
    let namespace = namespace.map(|namespace| KeyValue::new("service.namespace", namespace));
    let identity = [KeyValue::new("service.name", name), KeyValue::new("service.instance.id", instance_id)];
    Resource::builder_empty().with_attributes(identity.into_iter().chain(namespace)).build()
}

/// A version 4 UUID.
fn uuid(random: u128) -> String {
    let versioned = random & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let digits = format!("{versioned:032x}");
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_instance_has_a_uuid_of_version_4() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
