//! The gRPC and HTTP servers. Each converts a call to a [`RawRequest`], calls the [`Handler`] to decide it, and writes
//! the answer in the caller's format.
//!
//! Knows the wire formats and the limiter. Knows no store, no rule file and no setting: the application passes in a
//! limiter and options.

mod accept;
mod answer;
mod error;
pub mod grpc;
mod handler;
mod headers;
pub mod http;
mod metadata;
mod options;
pub mod protojson;
mod raw_request;
mod readiness;
mod request_error;
mod summary;
mod wire_unit;

pub use answer::DecisionAnswer;
pub use handler::Handler;
pub use options::{HeaderStyle, ResponseOptions};
pub use raw_request::{Bounds, RawDescriptor, RawRequest};
pub use readiness::{NotReadyReason, Readiness};
pub use request_error::{DescriptorError, RequestError};
