//! The use case: a request is checked, planned, decided and answered, the same for each door.
//!
//! The road of a request: `limiter` validates it, plans it by the rules in force, asks the store and counts the
//! decision; `answer` makes statuses and headers of the decision, `announcements` says which limits are announced, and
//! `metadata` makes the facts for Envoy's access log.
//! `error` says why a call gets no decision. Beside the road: `counters` shows and resets counters for operators, and
//! `readiness` says whether this process should get traffic.
//!
//! Knows the engine, a store, the metrics, and the words of `rules` for an exception. Knows no door, no rule file and
//! no setting; a door says in its own words why it refuses a call ([`NoDecision::Refused`]).

mod announcements;
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
