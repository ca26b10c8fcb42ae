//! What the settings file says. Values are taken as they are spelt, never by what YAML would make of them: an unquoted
//! password of digits stays what it is, and the file and the environment mean the same by the same text.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::{Fault, Origin, Problem, SettingsError};
use super::layers::{Form, Layer, Written};
use crate::yaml::{self, Content, Node, Scalar, YamlError};

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) layer: Layer,
    /// What is wrong with its keys, whatever settings there are.
    pub(super) problems: Vec<Problem>,
}

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Contents, SettingsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| SettingsError::Unreadable { path: path.to_owned(), cause })?;
    let unusable = |YamlError { line, reason }| SettingsError::Syntax { path: path.to_owned(), line, reason };
    let document = yaml::parse(&text).map_err(unusable)?;
    if let Some(line) = document.second_line {
        let reason = "another YAML document starts here; the settings are one".to_owned();
        return Err(unusable(YamlError { line, reason }));
    }
    let mut flattener = Flattener { path: path.to_owned(), contents: Contents::default() };
    match document.root.map(|root| root.content) {
        None => {}
        Some(Content::Map(pairs)) => flattener.map("", &pairs).map_err(unusable)?,
        Some(Content::Scalar(_) | Content::List(_)) => {
            return Err(SettingsError::NotSections { path: path.to_owned() });
        }
    }
    Ok(flattener.contents)
}

struct Flattener {
    path: PathBuf,
    contents: Contents,
}

impl Flattener {
    /// The keys below `section`. The depth of the document bounds the recursion.
    fn map(&mut self, section: &str, pairs: &[(Node, Node)]) -> Result<(), YamlError> {
        let mut lines = HashMap::new();
        for (key, value) in pairs {
            let line = key.line;
            let Content::Scalar(Scalar { text: name, .. }) = &key.content else {
                return Err(YamlError { line, reason: "a key is text, not a list or a map".to_owned() });
            };
            if let Some(first) = lines.insert(name, line) {
                return Err(YamlError { line, reason: format!("'{name}' stands here and on line {first}") });
            }
            let key = if section.is_empty() { name.to_string() } else { format!("{section}.{name}") };
            let origin = Origin::File { path: self.path.clone(), line };
            if name.contains('.') {
                self.contents.problems.push(Problem { key, origin, fault: Fault::Dotted });
                continue;
            }
            let form = match &value.content {
                Content::Map(pairs) if !pairs.is_empty() => {
                    self.map(&key, pairs)?;
                    continue;
                }
                Content::Map(_) => Form::Null,
                Content::List(_) => Form::List,
                Content::Scalar(scalar) => spelt(scalar),
            };
            self.contents.layer.insert(key, Written { value: form, origin });
        }
        Ok(())
    }
}

fn spelt(scalar: &Scalar) -> Form {
    match &*scalar.text {
        "" if scalar.is_plain => Form::Nothing,
        "~" | "null" | "Null" | "NULL" if scalar.is_plain => Form::Null,
        text => Form::Text(text.to_owned()),
    }
}
