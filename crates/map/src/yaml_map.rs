//! Access to a YAML map with a fixed set of keys, and mistakes in it.

use rules::nearest_name;
use rules::yaml::{Content, Node, YamlError};

/// Why a map cannot be used: `file:line: reason`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct MapError {
    pub file: String,
    pub line: u32,
    pub reason: String,
}

pub(crate) struct YamlMap<'n> {
    line: u32,
    name: &'static str,
    pairs: Vec<(&'n str, &'n Node)>,
}

impl<'n> YamlMap<'n> {
    /// Checks the keys of `node`, which messages call `name`.
    ///
    /// # Errors
    /// If `node` is not a map, or a key is unknown or repeated.
    pub fn new(node: &'n Node, name: &'static str, known: &[&str]) -> Result<Self, YamlError> {
        let Content::Map(pairs) = &node.content else {
            return Err(YamlError::new(node.line, format!("{name} must be a map of keys and values")));
        };
        let mut found: Vec<(&str, &Node)> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs.iter() {
            let text = scalar(key, "a key")?;
            if !known.contains(&text) {
                let reason = match nearest_name(text, known) {
                    Some(key) => format!("'{text}' is not a key of {name}; did you mean '{key}'?"),
                    None => format!("'{text}' is not a key of {name}; its keys are {}", known.join(", ")),
                };
                return Err(YamlError::new(key.line, reason));
            }
            if found.iter().any(|(other, _)| *other == text) {
                return Err(YamlError::new(key.line, format!("duplicate key '{text}'")));
            }
            found.push((text, value));
        }
        Ok(Self { line: node.line, name, pairs: found })
    }

    pub fn get(&self, key: &str) -> Option<&'n Node> {
        self.pairs.iter().find(|(name, _)| *name == key).map(|(_, node)| *node)
    }

    /// The value of a key, and its line.
    pub fn text(&self, key: &str) -> Result<Option<(&'n str, u32)>, YamlError> {
        self.get(key).map(|node| scalar(node, key).map(|text| (text, node.line))).transpose()
    }

    /// Parses the value of a key; if that fails, the message asks for `expected`.
    pub fn parsed<T>(
        &self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, YamlError> {
        let Some((text, line)) = self.text(key)? else { return Ok(None) };
        let wrong = || YamlError::new(line, format!("'{key}': expected {expected}, found '{text}'"));
        parse(text).map(Some).ok_or_else(wrong)
    }

    pub fn missing(&self, key: &str) -> YamlError {
        YamlError::new(self.line, format!("'{key}' is missing in {}", self.name))
    }
}

/// The string of a scalar; messages call it `name`.
pub(crate) fn scalar<'n>(node: &'n Node, name: &str) -> Result<&'n str, YamlError> {
    match &node.content {
        Content::Scalar(scalar) => Ok(&scalar.text),
        Content::List(_) | Content::Map(_) => {
            Err(YamlError::new(node.line, format!("{name} must be a string or a number")))
        }
    }
}

pub(crate) fn list<'n>(node: &'n Node, name: &str) -> Result<&'n [Node], YamlError> {
    match &node.content {
        Content::List(nodes) => Ok(nodes),
        Content::Scalar(_) | Content::Map(_) => {
            Err(YamlError::new(node.line, format!("{name} must be a list")))
        }
    }
}
