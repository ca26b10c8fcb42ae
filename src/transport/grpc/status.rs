//! The only place where an error becomes a gRPC status.

use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::transport::{DecisionCallError, ErrorKind, MessageError};

impl From<DecisionCallError> for Status {
    fn from(error: DecisionCallError) -> Self {
        let text = error.for_caller();
        match (error.kind(), &error) {
            (_, DecisionCallError::Message(MessageError::Compressed)) => uncompressed_only(text),
            (
                _,
                DecisionCallError::Message(MessageError::TooLarge { .. } | MessageError::LongBody { .. }),
            ) => Self::out_of_range(text),
            (ErrorKind::InvalidRequest, _) => Self::invalid_argument(text),
            (ErrorKind::StoreUnavailable | ErrorKind::Overloaded | ErrorKind::NoRules, _) => {
                Self::unavailable(text)
            }
            (ErrorKind::IncompleteRequest, _) => Self::deadline_exceeded(text),
        }
    }
}

/// Tells the client the encodings that it may use, as the protocol demands.
fn uncompressed_only(text: String) -> Status {
    let mut status = Status::unimplemented(text);
    status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
    status
}
