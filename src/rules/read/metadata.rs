//! Free-form `metadata` of a rule: YAML of any shape that a protobuf `Struct` can hold.

use std::collections::BTreeMap;

use crate::engine::Metadata;

use super::merge_keys::Pairs;
use super::report::{At, Report};
use super::yaml11::Meaning;
use crate::yaml::{Content, Node};

/// The metadata in a map of one or several parts. What cannot be held goes to `report` and is left out.
pub(super) fn read(parts: &[&Node], at: &At, report: &mut Report) -> Metadata {
    let mut map = BTreeMap::new();
    // Within metadata a repeated key replaces all of what it stands for.
    let mut pairs = Pairs { is_joined: |_| false, report };
    for pair in pairs.effective(parts, at) {
        let Content::Scalar(name) = &pair.key.content else {
            report.error(&at.on(pair.line), "error parsing metadata: a key is not text");
            continue;
        };
        let value = value(pair.value(), &at.key(&name.text, pair.value().line), report);
        map.insert(name.text.to_string(), value);
    }
    Metadata::Map(map)
}

fn value(node: &Node, at: &At, report: &mut Report) -> Metadata {
    match &node.content {
        Content::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => Metadata::Null,
            Meaning::Bool(flag) => Metadata::Bool(flag),
            // A Struct's numbers are floating point: what is above 2^53 is rounded on the wire anyway.
            Meaning::Int(number) => Metadata::Number(number as f64),
            Meaning::Float(number) if number.is_finite() => Metadata::Number(number),
            Meaning::Float(_) => {
                report.error(at, format!("error parsing metadata: {} is no finite number", scalar.text));
                Metadata::Null
            }
            Meaning::Text => Metadata::Text(scalar.text.to_string()),
        },
        Content::List(nodes) => {
            let elements = nodes.iter().enumerate();
            Metadata::List(
                elements.map(|(index, node)| value(node, &at.element(index, node.line), report)).collect(),
            )
        }
        Content::Map(_) => read(&[node], at, report),
    }
}
