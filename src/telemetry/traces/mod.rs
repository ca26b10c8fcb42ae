//! Traces: a span for each decision call, sent to a collector by OTLP.
//!
//! The SDK of OpenTelemetry makes the spans and decides which are sampled; a queue and a task of ours send them, so
//! that no call waits, and what is lost is counted. Without an endpoint there is no tracer: a call then makes no span,
//! and its headers are not looked at.

mod call_span;
mod exporter;
mod options;
mod parent;
mod sender;

pub use call_span::{CallSpan, SpannedCall, Tracer};
pub use options::{OtlpEndpoint, OtlpHeaders, OtlpProtocol, ServiceIdentity, TracesOptions};
pub use sender::Traces;
