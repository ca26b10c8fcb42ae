//! A map: which requests the lines of a log become, or the requests that are made now.

mod mapped;
mod read;
mod request;
mod sent;

use crate::entry::DescriptorRule;
use crate::expression::{Expression, FieldIndex, FieldUses};
use crate::timestamp::TimeFormat;
use crate::yaml_map::MapError;

pub use mapped::{Became, MappedLine};
pub use request::RequestMap;
pub use sent::SentDescriptors;

/// Which requests the lines of a log become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    file: String,
    domain: String,
    /// The first of these fields that a line has is its time; none: the field of the format.
    time: Vec<TimeField>,
    /// The field with the path, which is used in one spelling and without its query.
    normalized: Option<FieldIndex>,
    descriptors: Vec<DescriptorRule>,
    cost: CostRule,
    keep: Option<Expression>,
    good: Option<Expression>,
    was_limited: Option<Expression>,
    fields: FieldUses,
}

/// A field with a time, and how it is written.
pub type TimeField = (FieldIndex, TimeFormat);

/// The units of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CostRule {
    Constant(u64),
    /// The value of a field divided by the size of a unit, rounded up. A line without the field costs one unit.
    Field {
        field: FieldIndex,
        unit: u64,
    },
}

impl Map {
    /// The fields with the time: the first that a line has. None: the field of the format.
    #[must_use]
    pub fn time_fields(&self) -> &[TimeField] {
        &self.time
    }

    /// Asks for a field that the format of the log needs.
    pub fn want(&mut self, name: &str) -> FieldIndex {
        self.fields.index(name, 1)
    }

    /// The names of the fields that the map uses.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.names()
    }

    /// The name of a field; empty for one of another map.
    #[must_use]
    pub fn field_name(&self, FieldIndex(index): FieldIndex) -> &str {
        self.fields.get(index).unwrap_or_default().0
    }

    /// A mistake in the first line of the map, or in the line where it first uses a field.
    #[must_use]
    pub fn mistake(&self, field: Option<FieldIndex>, reason: String) -> MapError {
        let (_, line) = field.and_then(|FieldIndex(index)| self.fields.get(index)).unwrap_or(("", 1));
        MapError { file: self.file.clone(), line, reason }
    }

    /// Whether the map says which requests are good.
    #[must_use]
    pub fn has_good(&self) -> bool {
        self.good.is_some()
    }

    /// Whether the map says which requests were denied when the log was written.
    #[must_use]
    pub fn has_was_limited(&self) -> bool {
        self.was_limited.is_some()
    }
}
