//! The value of a key of a rule file, checked against the type in the table of keys.

use super::merge_keys::MergedValue;
use super::yaml11::ScalarValue;
use crate::keys::{Key, ValueType};
use crate::yaml::{Content, Node, Scalar, excerpt};

#[derive(Clone, Debug)]
pub(super) enum FieldValue<'n> {
    Text(&'n str),
    Integer(u32),
    Flag(bool),
    List(&'n [Node]),
    Map(MergedValue<'n>),
}

impl<'n> FieldValue<'n> {
    /// The value of `key`; `None` for null.
    ///
    /// # Errors
    /// The reason if the value, or one of several merged values, is not of the key's type.
    pub fn of_key(key: &Key, value: &MergedValue<'n>) -> Result<Option<Self>, String> {
        let name = key.name;
        let node = value.node();
        match (key.value_type, &node.content) {
            (_, Content::Scalar(scalar)) if scalar.yaml11_value() == ScalarValue::Null => Ok(None),
            (ValueType::List(_), Content::List(nodes)) => Ok(Some(Self::List(nodes))),
            (ValueType::Map(_) | ValueType::FreeMap, Content::Map(_)) => Ok(Some(Self::Map(value.clone()))),
            (ValueType::List(_), _) => Err(wrong_type(name, "a list", node)),
            (ValueType::Map(_) | ValueType::FreeMap, _) => Err(wrong_type(name, "a map", node)),
            (scalar_type, Content::Scalar(scalar)) => {
                Self::of_scalar(name, scalar_type, scalar, node).map(Some)
            }
            (ValueType::Flag, _) => Err(wrong_type(name, FLAG, node)),
            (ValueType::Integer(_), _) => Err(wrong_type(name, INTEGER, node)),
            (ValueType::Text | ValueType::Unit | ValueType::Choice(_), _) => {
                Err(wrong_type(name, "text", node))
            }
        }
    }

    fn of_scalar(name: &str, value_type: ValueType, scalar: &'n Scalar, node: &Node) -> Result<Self, String> {
        match (value_type, scalar.yaml11_value()) {
            (ValueType::Text | ValueType::Unit | ValueType::Choice(_), ScalarValue::Float(_)) => {
                // A value may be secret, and a token of hexadecimal digits may look like 12e34.
                let what =
                    if name == "value" { "what".to_owned() } else { format!("{}, which", scalar.text) };
                Err(format!(
                    "error checking config: '{name}' is {what} YAML reads as a floating-point number; put text in quotes"
                ))
            }
            (ValueType::Choice(choices), _) if !choices.contains(&&*scalar.text) => {
                Err(format!("unknown {name} '{}': it is one of {}", scalar.text, choices.join(", ")))
            }
            (ValueType::Text | ValueType::Unit | ValueType::Choice(_), _) => Ok(Self::Text(&scalar.text)),
            (ValueType::Flag | ValueType::Integer(_), ScalarValue::Float(_)) => {
                let wanted = if matches!(value_type, ValueType::Flag) { FLAG } else { INTEGER };
                Err(format!(
                    "error checking config: '{name}' must be {wanted}, found {}",
                    type_and_text(node)
                ))
            }
            (ValueType::Flag, ScalarValue::Bool(flag)) => Ok(Self::Flag(flag)),
            (ValueType::Flag, _) => Err(wrong_type(name, FLAG, node)),
            (ValueType::Integer(_), ScalarValue::Int(number)) => {
                u32::try_from(number).map(Self::Integer).map_err(|_| wrong_type(name, INTEGER, node))
            }
            _ => Err(wrong_type(name, INTEGER, node)),
        }
    }
}

const FLAG: &str = "true or false";
const INTEGER: &str = "a whole number from 0 to 4294967295";

fn wrong_type(name: &str, wanted: &str, node: &Node) -> String {
    format!("error loading config file: '{name}' must be {wanted}, found {}", type_and_text(node))
}

/// A node for a message: its type, and the text of a scalar.
pub(super) fn type_and_text(node: &Node) -> String {
    match &node.content {
        Content::Scalar(scalar) if scalar.yaml11_value() != ScalarValue::Null => {
            format!("{} '{}'", scalar.yaml11_value().label(), shorten(&scalar.text))
        }
        _ => text_or_type(node),
    }
}

/// A node for a message: the text of a scalar, the type of anything else.
pub(super) fn text_or_type(node: &Node) -> String {
    match &node.content {
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a map".to_owned(),
        Content::Scalar(scalar) if scalar.yaml11_value() == ScalarValue::Null => "nothing".to_owned(),
        Content::Scalar(scalar) => shorten(&scalar.text),
    }
}

fn shorten(text: &str) -> String {
    let (start, more) = excerpt(text);
    format!("{start}{more}")
}
