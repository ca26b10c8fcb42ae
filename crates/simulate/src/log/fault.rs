//! Why a line cannot be read.

use map::ValueFault;

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// A column of a text format is missing or malformed.
    #[error("not a line of the format {format}: no {column} after {bytes} bytes")]
    Column { format: &'static str, column: &'static str, bytes: usize },
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A quote without an end, or another number of columns than in the header.
    #[error("not a line of this CSV file: {0}")]
    Csv(&'static str),
    #[error("invalid UTF-8 after {0} bytes")]
    NotUtf8(usize),
    /// Longer than the longest line that is read.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    #[error(transparent)]
    Value(#[from] ValueFault),
    #[error("{0}")]
    Request(String),
}
