//! The only place where an error becomes a gRPC status.

use tonic::Status;

use crate::transport::error::{CallError, ErrorKind};

impl From<CallError> for Status {
    fn from(error: CallError) -> Self {
        match error.kind() {
            ErrorKind::InvalidRequest => Self::invalid_argument(error.for_caller()),
            ErrorKind::StoreUnavailable => Self::unavailable(error.for_caller()),
        }
    }
}
