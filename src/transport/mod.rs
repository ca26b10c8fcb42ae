//! The gRPC and HTTP servers. Each converts a call to a [`RawRequest`](engine::wire::RawRequest), calls the [`Handler`]
//! to decide it, and writes the answer in the caller's format.
//!
//! Knows the wire formats and the limiter. Knows no store, no rule file and no setting: the application passes in a
//! limiter and options.

mod accept;
mod admission;
mod answer;
mod error;
mod failures;
pub mod grpc;
mod handler;
mod headers;
pub mod http;
mod idle;
mod listener;
mod message_error;
mod metadata;
mod options;
mod readiness;
mod sending_page;
mod socket;
mod summary;
pub mod tls;
mod unfinished;

pub use accept::{ListenOptions, listen};
pub use admission::{Admission, ConnectionBounds};
pub use answer::{CallerAnswer, DecisionAnswer};
pub use error::{DecisionCallError, ErrorKind};
pub use failures::Failures;
pub use handler::Handler;
pub use listener::{ListenAddress, PortListener, SocketAccess};
pub use message_error::MessageError;
pub use options::{HeaderNames, HeaderStyle, OnInvalid, ResponseOptions};
pub use readiness::{NotReadyReason, Readiness};
pub use unfinished::UnfinishedBytes;
