//! Why a request could not be read from its call or body, or is not read. Messages hold no value of the request.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("the method is not POST")]
    Method,
    #[error("the content type is not application/grpc")]
    ContentType,
    #[error("the port does not answer web pages (Origin or Sec-Fetch-Site header)")]
    WebPage,
    #[error("{bytes} bytes in the headers, more than the {max} allowed")]
    LongHeaders { bytes: usize, max: usize },
    #[error("the message is compressed, which is not supported")]
    Compressed,
    #[error("{bytes} bytes in the message, more than the {max} allowed")]
    TooLarge { bytes: usize, max: usize },
    /// A body of HTTP, whose length is not always known.
    #[error("the body has more than the {max} bytes allowed")]
    LongBody { max: usize },
    /// `cause` names the field.
    #[error("the message is malformed: {cause}")]
    Malformed { cause: String },
    /// Fields, and elements of lists.
    #[error("more than {max} fields in the message")]
    ManyFields { max: usize },
    #[error("the call has no message")]
    Missing,
    #[error("the message ends too early")]
    Truncated,
    #[error("the call has more than one message")]
    Several,
    #[error("the request did not arrive completely within {0:?}")]
    Late(Duration),
    #[error("the client ended the request before it was complete")]
    Aborted,
    #[error("unfinished requests hold too many bytes")]
    ManyBytes,
    #[error("too many calls are open")]
    ManyCalls,
}
