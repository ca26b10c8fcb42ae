//! The gRPC and HTTP servers. Each converts a call to a [`RawRequest`], has the [`Handler`] decide it, and writes the
//! answer in the caller's format.
//!
//! Knows the wire formats and the limiter. Knows no store, no rule file and no setting: the application passes in a
//! limiter and options.

mod accept;
pub mod answer;
pub mod error;
pub mod grpc;
mod handler;
pub mod headers;
pub mod http;
pub mod metadata;
mod options;
pub mod protojson;
pub mod raw_request;
pub mod readiness;
mod request_error;
mod summary;

pub use answer::Answer;
pub use handler::Handler;
pub use options::{HeaderStyle, ResponseOptions};
pub use raw_request::{Bounds, RawDescriptor, RawRequest};
pub use readiness::{NotReadyReason, Readiness};
pub use request_error::{DescriptorError, RequestError};
