//! What is read from a line, and why a line cannot be read.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The values of the fields that a map wants, in the order in which they were asked for; `None` for a field that the
/// line does not have.
pub(crate) type Selected<'l> = SmallVec<[Option<Cow<'l, str>>; 8]>;

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// A column of a text format is missing or has another shape.
    #[error("not a line of the format {format}: no {column} after {bytes} bytes")]
    Column { format: &'static str, column: &'static str, bytes: usize },
    /// A line of JSON cannot be parsed.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A line of CSV has a quote that does not end, or too few columns.
    #[error("not a line of this CSV file: {0}")]
    Csv(&'static str),
    /// Bytes that are not text.
    #[error("invalid UTF-8 after {0} bytes")]
    NotUtf8(usize),
    /// Longer than the longest line that is read.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// The fields that may have the time are missing.
    #[error("no time: {0} is missing")]
    NoTime(String),
    /// The field with the time is not a time.
    #[error("not a time: {0:?}")]
    Time(String),
    /// The time is out of range.
    #[error("the time is {0} us, but only times from 1970 to 2111 can be decided exactly")]
    TimeRange(u64),
    /// The cost is not a number.
    #[error("the cost {0:?} is not a whole number")]
    Cost(String),
    /// The path that a map normalizes.
    #[error("the path has a segment '.' or '..', and services do not read it in the same way")]
    DotSegment,
    /// A recorded request that is not valid.
    #[error("{0}")]
    Request(String),
}
