//! Free-form `metadata` of a rule: YAML of any shape that a protobuf `Struct` can hold.

use std::collections::BTreeMap;

use engine::Metadata;

use super::merge_keys::{EntryReader, MergedValue};
use super::yaml11::ScalarValue;
use super::{FileReport, Position};
use crate::yaml::{Content, Node, Scalar};

/// Levels of maps and lists in metadata. A level takes up to three nested messages in an answer, and callers' decoders
/// reject messages of 100 levels; Envoy adds some when it passes metadata on.
const MAX_DEPTH: usize = 16;

/// Reads metadata. Values that a `Struct` cannot hold are reported and left out.
pub(super) fn read_metadata(map: &MergedValue<'_>, at: &Position, report: &mut FileReport) -> Metadata {
    read_map(map, at, MAX_DEPTH, report)
}

/// `levels`: the maximum depth of the map.
fn read_map(map: &MergedValue<'_>, at: &Position, levels: usize, report: &mut FileReport) -> Metadata {
    let Some(below) = levels.checked_sub(1) else {
        return too_deep(at, report);
    };
    let mut metadata = BTreeMap::new();
    // Within metadata a repeated key replaces the whole earlier value.
    let mut reader = EntryReader { is_merged: |_| false, report };
    for entry in reader.entries(map, at) {
        let Content::Scalar(name) = &entry.key.content else {
            report.error(&at.on_line(entry.line), "error parsing metadata: a key is not a string");
            continue;
        };
        let node = entry.value.node();
        let value = read_value(node, &at.key(&name.text, node.line), below, report);
        metadata.insert(name.text.to_string(), value);
    }
    Metadata::Map(metadata)
}

fn read_value(node: &Node, at: &Position, levels: usize, report: &mut FileReport) -> Metadata {
    match &node.content {
        Content::Scalar(scalar) => read_scalar(scalar, at, report),
        Content::List(nodes) => {
            let Some(below) = levels.checked_sub(1) else {
                return too_deep(at, report);
            };
            let elements = nodes.iter().enumerate();
            let values =
                elements.map(|(index, node)| read_value(node, &at.element(index, node.line), below, report));
            Metadata::List(values.collect())
        }
        Content::Map(_) => read_map(&node.into(), at, levels, report),
    }
}

fn too_deep(at: &Position, report: &mut FileReport) -> Metadata {
    let reason =
        format!("error parsing metadata: maps and lists may not nest deeper than {MAX_DEPTH} levels");
    report.error(at, reason);
    Metadata::Null
}

fn read_scalar(scalar: &Scalar, at: &Position, report: &mut FileReport) -> Metadata {
    match ScalarValue::resolve(scalar) {
        ScalarValue::Null => Metadata::Null,
        ScalarValue::Bool(flag) => Metadata::Bool(flag),
        // Numbers of a Struct are doubles, so the answer would round above 2^53 anyway.
        ScalarValue::Int(number) => Metadata::Number(number as f64),
        ScalarValue::Float(number) if number.is_finite() => Metadata::Number(number),
        ScalarValue::Float(_) => {
            report.error(at, format!("error parsing metadata: {} is not a finite number", scalar.text));
            Metadata::Null
        }
        ScalarValue::Text => Metadata::Text(scalar.text.to_string()),
    }
}
