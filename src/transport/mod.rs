//! The doors: gRPC and HTTP. Each turns what arrives into an [`engine::Request`](crate::engine::Request), asks the
//! limiter, and turns the decision into an answer.
//!
//! Knows the wire formats and the limiter. Knows no store, no rule file and no setting: the application hands it a
//! limiter and options of its own.

mod accept;
pub mod answer;
pub mod bounds;
pub mod error;
pub mod grpc;
pub mod headers;
pub mod http;
pub mod metadata;
pub mod protojson;
pub mod readiness;

pub use answer::{Answer, HeaderStyle, ResponseOptions};
pub use bounds::Bounds;
pub use readiness::{Obstacle, Readiness};
