//! The span of one decision call.

use std::sync::Arc;

use engine::{Applied, Code, DecidedBy, Decision};
use http::HeaderMap;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

use super::parent::{is_unsampled, parent};
use crate::telemetry::metrics::RequestFailure;

/// Rule named for a limit that the request brings.
const OVERRIDE: &str = "override";

/// A longer domain is cut: a request can have one of many kilobytes, and thousands of spans can wait.
const MAX_DOMAIN_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpannedCall {
    /// Service and method.
    Grpc(&'static str),
    /// `POST` and a path.
    Post(&'static str),
    Check,
}

/// Starts call spans. Off by default: no spans, headers ignored.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<SdkTracer>>);

/// A call's span, which ends with this value. Empty if the call is not sampled.
#[derive(Debug, Default)]
pub struct CallSpan(Option<Box<Span>>);

impl Tracer {
    pub(super) fn new(tracer: SdkTracer) -> Self {
        Self(Some(Arc::new(tracer)))
    }

    /// Starts a call's span with these headers.
    #[must_use]
    pub fn start_call(&self, call: SpannedCall, headers: &HeaderMap) -> CallSpan {
        match &self.0 {
            None => CallSpan::default(),
            Some(tracer) => start_call(tracer, call, headers),
        }
    }

    /// Copies a call's headers for several requests, each with its own span. Empty without a tracer.
    pub fn headers_for_spans(&self, headers: &HeaderMap) -> HeaderMap {
        self.0.as_ref().map(|_| headers.clone()).unwrap_or_default()
    }
}

/// Separate from `start_call`, which every call runs.
#[cold]
fn start_call(tracer: &SdkTracer, call: SpannedCall, headers: &HeaderMap) -> CallSpan {
    // The SDK treats a context without a span as a caller that does not sample.
    let caller = match parent(headers) {
        Some(span) => Context::new().with_remote_span_context(span),
        None if is_unsampled(headers) => return CallSpan::default(),
        None => Context::new(),
    };
    let builder = SpanBuilder::from_name(call.span_name())
        .with_kind(SpanKind::Server)
        .with_attributes(call.attributes());
    let span = tracer.build_with_context(builder, &caller);
    CallSpan(span.is_recording().then(|| Box::new(span)))
}

impl SpannedCall {
    /// As in envoyproxy/ratelimit, where that has a name.
    fn span_name(self) -> &'static str {
        match self {
            Self::Grpc(name) | Self::Post(name) => name,
            // With any method.
            Self::Check => "/check",
        }
    }

    fn attributes(self) -> Vec<KeyValue> {
        match self {
            Self::Grpc(name) => {
                let (service, method) = name.split_once('/').unwrap_or_default();
                vec![
                    KeyValue::new("rpc.system", "grpc"),
                    KeyValue::new("rpc.service", service),
                    KeyValue::new("rpc.method", method),
                ]
            }
            Self::Post(name) => {
                let route = name.trim_start_matches("POST ");
                vec![KeyValue::new("http.request.method", "POST"), KeyValue::new("http.route", route)]
            }
            Self::Check => vec![KeyValue::new("http.route", "/check")],
        }
    }
}

impl CallSpan {
    /// Adds the request. Descriptor values can be secret, so they are left out.
    pub fn add_request(&mut self, domain: &str, descriptors: usize) {
        if let Some(span) = &mut self.0 {
            let end = domain.floor_char_boundary(MAX_DOMAIN_BYTES);
            span.set_attribute(KeyValue::new("ratelimit.domain", domain[..end].to_owned()));
            let descriptors = i64::try_from(descriptors).unwrap_or(i64::MAX);
            span.set_attribute(KeyValue::new("ratelimit.descriptors", descriptors));
        }
    }

    /// Adds the code, whether borrowed units decided a limit, and which limit the first denied descriptor exceeds.
    pub fn add_decision(&mut self, decision: &Decision) {
        let Some(span) = &mut self.0 else { return };
        span.set_attribute(KeyValue::new("ratelimit.code", decision.overall.into_str()));
        if decision.limit_results().any(|result| matches!(result.outcome.decided_by, DecidedBy::Lease(_))) {
            span.set_attribute(KeyValue::new("ratelimit.decided_by", "lease"));
        }
        let over = decision.statuses().find(|status| status.code == Code::OverLimit);
        if let Some(Applied::Limited(result)) = over.map(|status| status.applied) {
            let rule = match result.rule {
                Some(_) => result.limit.label.to_string(),
                None => OVERRIDE.to_owned(),
            };
            span.set_attribute(KeyValue::new("ratelimit.over_limit_rule", rule));
        }
    }

    pub fn add_failure(&mut self, failure: RequestFailure) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new("error.type", failure.name()));
            span.set_status(Status::error(""));
        }
    }
}
