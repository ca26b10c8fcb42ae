//! Traces: a span for each decision call, sent to a collector by OTLP.
//!
//! The SDK of OpenTelemetry makes the spans and decides which are sampled; a queue and a task of ours send them, so
//! that no call waits, and what is lost is counted. Without an endpoint there is no tracer: a call then makes no span,
//! and its headers are not looked at.

mod call_span;
mod collector;
mod endpoint;
mod grpc_exporter;
mod http_exporter;
mod options;
mod parent;
mod queue;
mod sender;

pub use call_span::{CallSpan, SpannedCall, Tracer};
pub use endpoint::OtlpEndpoint;
pub use options::{OtlpHeaders, OtlpProtocol, ServiceIdentity, TracesOptions};
pub use sender::Traces;
