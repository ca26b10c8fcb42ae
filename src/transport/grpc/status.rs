//! The one place where an error becomes a gRPC status.

use tonic::Status;

use crate::transport::error::{Blame, CallError};

/// What the caller of a failed call gets. The whole error goes to the log, at a level that an outage does not flood.
pub(super) fn of(error: &CallError) -> Status {
    let told = error.for_caller();
    tracing::debug!(%error, "call failed");
    match error.blame() {
        Blame::Caller => Status::invalid_argument(told),
        Blame::Store => Status::unavailable(told),
    }
}
