//! Reads YAML: the settings file, and lists in variables. A value keeps its spelling: YAML's own types are ignored, so
//! an unquoted password of digits stays text, and a text means the same in the file and in the environment.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use config::{Map, Value, ValueKind};
use rules::yaml::{self, Content, Node, Scalar, YamlError};

use super::error::{Fault, SettingProblem, SettingsError};

/// The size limit of a settings file: far above all settings with comments.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The values of one layer by dotted key. A text is a string, a key with nothing after the colon is nil, `null`, `~`
/// and `{}` are an empty table, and a list is an array. The origin of a value is the place as messages name it.
pub(crate) type Layer = BTreeMap<String, Value>;

/// A file as flat keys.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) layer: Layer,
    /// Keys with dots in them.
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
    /// Adds the keys below `section`. The YAML parser limits the depth of the document, and so of this recursion.
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

/// The pairs of a map with the line and the name of each key.
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

/// A value with those inside it. Null is nil.
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

/// Whether there is nothing after the colon.
fn is_nothing(scalar: &Scalar) -> bool {
    scalar.is_plain && scalar.text.is_empty()
}

/// The elements of a list in YAML. All of them have the same origin.
pub(super) fn list_of(text: &str, origin: &str) -> Option<Vec<Value>> {
    let root = yaml::parse(text).ok()?.root?;
    match value(root.line, &root, &|_| origin.to_owned()).ok()?.kind {
        ValueKind::Array(elements) => Some(elements),
        _ => None,
    }
}
