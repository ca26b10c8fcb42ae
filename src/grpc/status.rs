//! The only place where an error becomes a gRPC status.

use http::StatusCode;
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::decide::{DecisionCallError, ErrorKind, MessageError};

impl From<DecisionCallError> for Status {
    fn from(error: DecisionCallError) -> Self {
        let text = error.for_caller();
        match (error.kind(), &error) {
            (_, DecisionCallError::Message(MessageError::Compressed)) => uncompressed_only(text),
            (_, DecisionCallError::Message(MessageError::Method)) => post_only(text),
            (
                _,
                DecisionCallError::Message(
                    MessageError::TooLarge { .. }
                    | MessageError::LongBody { .. }
                    | MessageError::LongHeaders { .. },
                ),
            ) => Self::out_of_range(text),
            (ErrorKind::InvalidRequest, _) => Self::invalid_argument(text),
            (ErrorKind::StoreUnavailable | ErrorKind::Overloaded | ErrorKind::NoRules, _) => {
                Self::unavailable(text)
            }
            (ErrorKind::IncompleteRequest, _) => Self::deadline_exceeded(text),
        }
    }
}

/// The status of HTTP for a call that is none of gRPC.
pub(super) fn http_status(error: &MessageError) -> Option<StatusCode> {
    match error {
        MessageError::Method => Some(StatusCode::METHOD_NOT_ALLOWED),
        MessageError::ContentType => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
        MessageError::WebPage => Some(StatusCode::FORBIDDEN),
        _ => None,
    }
}

/// Tells the client the method that it may use, as HTTP demands.
fn post_only(text: String) -> Status {
    let mut status = Status::invalid_argument(text);
    status.metadata_mut().insert("allow", MetadataValue::from_static("POST"));
    status
}

/// Tells the client the encodings that it may use, as the protocol demands.
fn uncompressed_only(text: String) -> Status {
    let mut status = Status::unimplemented(text);
    status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
    status
}
