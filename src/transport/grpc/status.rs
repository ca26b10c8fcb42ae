//! The only place where an error becomes a gRPC status.

use tonic::Status;

use crate::transport::error::{DecisionCallError, ErrorKind};

impl From<DecisionCallError> for Status {
    fn from(error: DecisionCallError) -> Self {
        match error.kind() {
            ErrorKind::InvalidRequest => Self::invalid_argument(error.for_caller()),
            ErrorKind::StoreUnavailable => Self::unavailable(error.for_caller()),
        }
    }
}
