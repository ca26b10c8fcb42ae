//! Free-form values of a rule that are sent back with the answer.

use std::collections::BTreeMap;

/// A value of a rule's `metadata`, with the shapes a protobuf `Struct` can hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, as a protobuf `Struct` holds it. Never used in a decision.
    Number(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Metadata>),
    /// Values by name.
    Map(BTreeMap<String, Metadata>),
}

impl Metadata {
    /// Adds the values of `other` that `self` lacks. Where both have a value, that of `self` stays; two maps are
    /// merged.
    pub fn merge(&mut self, other: &Self) {
        let (Self::Map(ours), Self::Map(theirs)) = (self, other) else {
            return;
        };
        for (name, value) in theirs {
            match ours.get_mut(name) {
                Some(kept) => kept.merge(value),
                None => {
                    ours.insert(name.clone(), value.clone());
                }
            }
        }
    }
}
