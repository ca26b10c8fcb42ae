//! Free-form `metadata` of a rule: YAML of any shape that a protobuf `Struct` can hold.

use std::collections::BTreeMap;

use crate::engine::Metadata;

use super::pairs::effective;
use super::report::{At, Report};
use super::scalar::Meaning;
use super::yaml::{Content, Node};

/// The metadata in `node`. What cannot be held goes to `report` and is left out.
pub(super) fn read(node: &Node, at: &At, report: &mut Report) -> Metadata {
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
                elements.map(|(index, node)| read(node, &at.element(index, node.line), report)).collect(),
            )
        }
        Content::Map(pairs) => {
            let mut map = BTreeMap::new();
            for pair in effective(pairs, at, report) {
                let Content::Scalar(name) = &pair.key.content else {
                    report.error(&at.on(pair.line), "error parsing metadata: a key is not text");
                    continue;
                };
                let value = read(pair.value, &at.key(&name.text, pair.value.line), report);
                map.insert(name.text.to_string(), value);
            }
            Metadata::Map(map)
        }
    }
}
