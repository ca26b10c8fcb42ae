//! The use case: a request is checked, planned, decided and answered, the same for each door.
//!
//! Knows the engine, a store and the metrics. Knows no door, no rule file and no setting; the reasons why a door
//! refuses a call are cases of [`NoDecision`].

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
