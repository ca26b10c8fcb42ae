//! A map: which requests the lines of a log become, or which descriptors a live request gets.

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
    /// A line's time is the first of these fields that it has; empty: the format's own time field.
    time: Vec<TimeField>,
    /// The field with the path, which is normalized and used without its query.
    normalized: Option<FieldIndex>,
    /// The fields with a host: in lower case, without port and final dot, because a client chooses these.
    hosts: Vec<FieldIndex>,
    descriptors: Vec<DescriptorRule>,
    cost: CostRule,
    keep: Option<Expression>,
    good: Option<Expression>,
    was_limited: Option<Expression>,
    fields: FieldUses,
}

pub type TimeField = (FieldIndex, TimeFormat);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CostRule {
    Constant(u64),
    /// The field's value divided by the size of a unit, rounded up. A line without the field costs one unit.
    Field {
        field: FieldIndex,
        unit: u64,
    },
}

impl Map {
    /// A line's time is the first of these fields that it has. Empty: the format's own time field.
    pub fn time_fields(&self) -> &[TimeField] {
        &self.time
    }

    /// Requests a field that the log format needs.
    pub fn want(&mut self, name: &str) -> FieldIndex {
        self.fields.index(name, 1)
    }

    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.names()
    }

    /// Empty for a field of another map.
    pub fn field_name(&self, FieldIndex(index): FieldIndex) -> &str {
        self.fields.get(index).unwrap_or_default().0
    }

    /// A mistake in the first line of the map, or in the line that first uses `field`.
    pub fn mistake(&self, field: Option<FieldIndex>, reason: String) -> MapError {
        let (_, line) = field.and_then(|FieldIndex(index)| self.fields.get(index)).unwrap_or(("", 1));
        MapError { file: self.file.clone(), line, reason }
    }

    /// `true` if the map says which requests are good.
    pub fn has_good(&self) -> bool {
        self.good.is_some()
    }

    /// `true` if the map says which requests were denied when the log was written.
    pub fn has_was_limited(&self) -> bool {
        self.was_limited.is_some()
    }
}
