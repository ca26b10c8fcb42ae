//! Free-form `metadata` of a rule: YAML of any shape that a protobuf `Struct` can hold.

use std::collections::BTreeMap;

use crate::engine::Metadata;

use super::file_report::{FileReport, Position};
use super::merge_keys::{EntryReader, MergedValue};
use super::yaml11::ScalarValue;
use crate::yaml::{Content, Node, Scalar};

/// The metadata in `map`. Values that a `Struct` cannot hold are reported and left out.
pub(super) fn read_metadata(map: &MergedValue<'_>, at: &Position, report: &mut FileReport) -> Metadata {
    let mut metadata = BTreeMap::new();
    // Within metadata a repeated key replaces the whole earlier value.
    let mut reader = EntryReader { is_merged: |_| false, report };
    for entry in reader.entries(map, at) {
        let Content::Scalar(name) = &entry.key.content else {
            report.error(&at.on_line(entry.line), "error parsing metadata: a key is not text");
            continue;
        };
        let node = entry.value.node();
        let value = read_value(node, &at.key(&name.text, node.line), report);
        metadata.insert(name.text.to_string(), value);
    }
    Metadata::Map(metadata)
}

fn read_value(node: &Node, at: &Position, report: &mut FileReport) -> Metadata {
    match &node.content {
        Content::Scalar(scalar) => read_scalar(scalar, at, report),
        Content::List(nodes) => {
            let elements = nodes.iter().enumerate();
            let values =
                elements.map(|(index, node)| read_value(node, &at.element(index, node.line), report));
            Metadata::List(values.collect())
        }
        Content::Map(_) => read_metadata(&node.into(), at, report),
    }
}

fn read_scalar(scalar: &Scalar, at: &Position, report: &mut FileReport) -> Metadata {
    match scalar.yaml11_value() {
        ScalarValue::Null => Metadata::Null,
        ScalarValue::Bool(flag) => Metadata::Bool(flag),
        // Numbers of a Struct are doubles: the answer would round above 2^53 in any case.
        ScalarValue::Int(number) => Metadata::Number(number as f64),
        ScalarValue::Float(number) if number.is_finite() => Metadata::Number(number),
        ScalarValue::Float(_) => {
            report.error(at, format!("error parsing metadata: {} is not a finite number", scalar.text));
            Metadata::Null
        }
        ScalarValue::Text => Metadata::Text(scalar.text.to_string()),
    }
}
