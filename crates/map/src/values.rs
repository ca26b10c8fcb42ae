//! The field values that a map needs, and why one of them cannot be used.

use std::borrow::Cow;

use smallvec::SmallVec;

/// Values in the order of the map's fields; `None` for a field that the line does not have.
pub type Selected<'l> = SmallVec<[Option<Cow<'l, str>>; 8]>;

/// Why the value of a field cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    /// All fields that may hold the time are missing.
    #[error("{0} is missing, so the line has no time")]
    NoTime(String),
    /// The time field does not hold a time.
    #[error("not a time: {0:?}")]
    Time(String),
    #[error("the time is {0} us, but only times from 1970 to 2111 can be decided exactly")]
    TimeRange(u64),
    #[error("cost: expected a number, found {0:?}")]
    Cost(String),
    /// In a path that the map normalizes.
    #[error("the path has a segment '.' or '..', and services do not read it in the same way")]
    DotSegment,
}
