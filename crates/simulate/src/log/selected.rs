//! The values of the fields that a map wants.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The values of the wanted fields, in the order in which they were asked for; `None` for a field that the line does
/// not have.
pub(crate) type Selected<'l> = SmallVec<[Option<Cow<'l, str>>; 8]>;
