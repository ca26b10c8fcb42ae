//! The use case: a request is checked, planned, decided and answered, the same for each door.
//!
//! Knows the engine, a store and the metrics. Knows neither gRPC nor HTTP, no rule file and no setting.

pub(crate) mod answer;
pub mod counters;
mod error;
pub mod limiter;
mod metadata;
pub(crate) mod readiness;

pub use answer::{Answer, HeaderNames, HeaderStyle, ResponseOptions};
pub use error::{Failures, NoDecision};
pub use limiter::{Handler, OnInvalid};
pub use readiness::{NotReadyReason, Readiness};
