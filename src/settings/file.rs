//! Reads YAML: the settings file, and lists in variables. Values keep their spelling: YAML types are ignored, so an
//! unquoted password of digits stays a string, and a value means the same in the file and in the environment.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use config::{Map, Value, ValueKind};
use rules::yaml::{self, Content, Node, Scalar, YamlError};

use super::error::{Fault, SettingProblem, SettingsError};

/// Maximum size of a settings file: far above all settings with comments.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// One layer's values by dotted key. A scalar is a string, a key with nothing after the colon is nil, `null`, `~` and
/// `{}` are an empty table, and a list is an array. A value's origin is where it was written, as in messages.
pub(crate) type Layer = BTreeMap<String, Value>;

#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) layer: Layer,
    /// Keys that contain dots.
    pub(super) problems: Vec<SettingProblem>,
}

pub(super) fn read_file(path: &Path) -> Result<Contents, SettingsError> {
    let text = read_text(path).map_err(|cause| SettingsError::Unreadable { path: path.to_owned(), cause })?;
    let unusable = |YamlError { line, reason }| SettingsError::Syntax { path: path.to_owned(), line, reason };
    let document = yaml::parse(&text).map_err(unusable)?;
    if let Some(line) = document.second_line {
        let reason = "another YAML document starts here; the settings must be one document".to_owned();
        return Err(unusable(YamlError { line, reason }));
    }
    let mut contents = Contents::default();
    match document.root.map(|root| root.content) {
        None => {}
        Some(Content::Map(pairs)) => {
            let origin = |line| format!("file {}:{line}", path.display());
            contents.flatten("", &pairs, &origin).map_err(unusable)?;
        }
        Some(Content::Scalar(_) | Content::List(_)) => {
            return Err(SettingsError::NotSections { path: path.to_owned() });
        }
    }
    Ok(contents)
}

fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(base::read_file(path, MAX_FILE_BYTES)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

impl Contents {
    /// Adds the keys below `section`. The YAML parser limits the document's depth, and so this recursion.
    fn flatten(
        &mut self,
        section: &str,
        pairs: &[(Node, Node)],
        origin: &dyn Fn(u32) -> String,
    ) -> Result<(), YamlError> {
        for (line, name, node) in named(pairs)? {
            let key = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
            if name.contains('.') {
                self.problems.push(SettingProblem { key, origin: origin(line), fault: Fault::Dotted });
                continue;
            }
            let value = match &node.content {
                Content::Map(pairs) if !pairs.is_empty() => {
                    self.flatten(&key, pairs, origin)?;
                    continue;
                }
                Content::Scalar(scalar) if scalar.is_null() && !is_nothing(scalar) => {
                    Value::new(Some(&origin(line)), Map::<String, Value>::new())
                }
                _ => value(line, node, origin)?,
            };
            self.layer.insert(key, value);
        }
        Ok(())
    }
}

/// Returns a map's pairs, with each key's line and name.
fn named(pairs: &[(Node, Node)]) -> Result<Vec<(u32, &str, &Node)>, YamlError> {
    let mut lines = HashMap::new();
    let mut all = Vec::with_capacity(pairs.len());
    for (key, node) in pairs {
        let line = key.line;
        let Content::Scalar(Scalar { text: name, .. }) = &key.content else {
            return Err(YamlError { line, reason: "a key must be a string, not a list or a map".to_owned() });
        };
        if let Some(first) = lines.insert(name, line) {
            return Err(YamlError { line, reason: format!("'{name}' is also set on line {first}") });
        }
        all.push((line, &**name, node));
    }
    Ok(all)
}

/// Converts a value with everything inside it. Null becomes nil.
fn value(line: u32, node: &Node, origin: &dyn Fn(u32) -> String) -> Result<Value, YamlError> {
    let kind = match &node.content {
        Content::Scalar(scalar) if scalar.is_null() => ValueKind::Nil,
        Content::Scalar(scalar) => ValueKind::String(scalar.text.to_string()),
        Content::List(elements) => {
            let elements = elements.iter().map(|element| value(element.line, element, origin));
            ValueKind::Array(elements.collect::<Result<_, _>>()?)
        }
        Content::Map(pairs) => {
            let pairs = named(pairs)?.into_iter();
            let pairs = pairs.map(|(line, name, node)| Ok((name.to_owned(), value(line, node, origin)?)));
            ValueKind::Table(pairs.collect::<Result<_, YamlError>>()?)
        }
    };
    Ok(Value::new(Some(&origin(line)), kind))
}

/// `true` if there is nothing after the colon.
fn is_nothing(scalar: &Scalar) -> bool {
    scalar.is_plain && scalar.text.is_empty()
}

/// Returns a YAML list's elements. All of them have the same origin.
pub(super) fn list_of(text: &str, origin: &str) -> Option<Vec<Value>> {
    let root = yaml::parse(text).ok()?.root?;
    match value(root.line, &root, &|_| origin.to_owned()).ok()?.kind {
        ValueKind::Array(elements) => Some(elements),
        _ => None,
    }
}
