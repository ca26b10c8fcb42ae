//! Free-form values that a rule carries back to the caller.

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
    /// Adds what `other` has and `self` lacks; where both have a value the first stays, maps are merged inside.
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
