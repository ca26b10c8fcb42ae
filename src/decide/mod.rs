//! Decides one request, for every transport: validate, plan, charge, answer.
//!
//! Depends on the engine, a store and the metrics, and on `rules` for exceptions; not on a transport, rule files or
//! settings. A transport words its own refusals ([`NoDecision::Refused`]). Entry point: `limiter`.

mod announcements;
pub(crate) mod answer;
pub mod counters;
mod error;
pub(crate) mod holds;
pub mod limiter;
mod metadata;
mod pauses;
pub(crate) mod problem;
pub(crate) mod readiness;
pub(crate) mod rights;
pub mod usage;
pub mod usage_list;

pub use answer::{Answer, HeaderNames, HeaderStyle, ResponseOptions};
pub use error::{Failures, NoDecision};
pub use limiter::{Handler, OnInvalid};
pub use pauses::PauseEvents;
pub use readiness::{NotReadyReason, Readiness};
pub(crate) use rights::{CallOrigin, CertificateRights};
pub use rights::{KnownTokens, Right, RightHolders, Rights};
