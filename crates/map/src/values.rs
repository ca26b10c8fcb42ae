//! The values that a map wants, and why one of them cannot be used.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The values of the fields that a map wants, in the order in which they were asked for; `None` for a field that the
/// line does not have.
pub type Selected<'l> = SmallVec<[Option<Cow<'l, str>>; 8]>;

/// Why the value of a field cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    /// The fields that may have the time are missing.
    #[error("{0} is missing, so the line has no time")]
    NoTime(String),
    /// The field with the time is not a time.
    #[error("not a time: {0:?}")]
    Time(String),
    /// The time is out of range.
    #[error("the time is {0} us, but only times from 1970 to 2111 can be decided exactly")]
    TimeRange(u64),
    /// The cost is not a number.
    #[error("cost: expected a whole number, found {0:?}")]
    Cost(String),
    /// The path that a map normalizes.
    #[error("the path has a segment '.' or '..', and services do not read it in the same way")]
    DotSegment,
}
