//! The use case: a request is checked, planned, decided and answered, the same for each door.
//!
//! Knows the engine, a store and the metrics. Knows neither gRPC nor HTTP, no rule file and no setting.

pub(crate) mod answer;
pub mod counters;
mod error;
mod failures;
mod handler;
pub(crate) mod headers;
pub mod limiter;
mod message_error;
mod metadata;
mod options;
pub(crate) mod readiness;
mod summary;

pub use answer::{CallerAnswer, DecisionAnswer};
pub use error::{DecisionCallError, ErrorKind};
pub use failures::Failures;
pub use handler::Handler;
pub use message_error::MessageError;
pub use options::{HeaderNames, HeaderStyle, OnInvalid, ResponseOptions};
pub use readiness::{NotReadyReason, Readiness};
