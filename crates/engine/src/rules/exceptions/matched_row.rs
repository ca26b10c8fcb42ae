//! A row that is for an entry, and its place among the rows of a descriptor.

use std::sync::Arc;

use super::rows::{ExceptionRow, FileTier};

/// A row that is for an entry of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchedRow<'x> {
    pub(super) place: Place,
    pub(super) row: AnyRow<'x>,
}

/// Which of two rows counts more, if neither or both name limits: the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The index of the entry: deeper entries count more.
    pub(super) entry: usize,
    /// The length of a network's prefix; the largest number for an exact value.
    pub(super) precision: u8,
    /// The position of the file, and that of the row in it.
    pub(super) file: u32,
    pub(super) row: u32,
}

/// A row with all columns, or one of the table of tiers.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyRow<'x> {
    Full(&'x Arc<ExceptionRow>),
    Tier(&'x FileTier),
}
