//! Traces: one span per decision call, sent to a collector with OTLP.
//!
//! The OpenTelemetry SDK creates and samples the spans; a queue and a task in this module send them, so that no call
//! waits, and lost spans are counted. If there is no endpoint, there is no tracer: calls then create no spans, and
//! their headers are ignored.

mod call_span;
mod exporter;
mod options;
mod parent;
mod sender;

pub use call_span::{CallSpan, SpannedCall, Tracer};
pub use options::{OtlpHeaders, OtlpProtocol, ServiceIdentity, TracesOptions, otlp_endpoint};
pub use sender::Traces;
