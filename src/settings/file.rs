//! Reads the settings file. A value keeps its spelling: YAML's own types are ignored, so an unquoted password of digits
//! stays text, and a text means the same in the file and in the environment.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rules::yaml::{self, Content, Node, Scalar, YamlError};

use super::error::{Fault, Origin, SettingProblem, SettingsError};
use super::layers::{Layer, RawSetting, RawValue};

/// The size limit of a settings file: far above all settings with comments.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file as flat keys.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) layer: Layer,
    /// Malformed keys: problems that do not depend on the list of settings.
    pub(super) problems: Vec<SettingProblem>,
}

pub(super) fn read_file(path: &Path) -> Result<Contents, SettingsError> {
    let text =
        read_bounded(path).map_err(|cause| SettingsError::Unreadable { path: path.to_owned(), cause })?;
    let unusable = |YamlError { line, reason }| SettingsError::Syntax { path: path.to_owned(), line, reason };
    let document = yaml::parse(&text).map_err(unusable)?;
    if let Some(line) = document.second_line {
        let reason = "another YAML document starts here; the settings must be one document".to_owned();
        return Err(unusable(YamlError { line, reason }));
    }
    let mut flattener = Flattener { path: path.to_owned(), contents: Contents::default() };
    match document.root.map(|root| root.content) {
        None => {}
        Some(Content::Map(pairs)) => flattener.flatten("", &pairs).map_err(unusable)?,
        Some(Content::Scalar(_) | Content::List(_)) => {
            return Err(SettingsError::NotSections { path: path.to_owned() });
        }
    }
    Ok(flattener.contents)
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

struct Flattener {
    path: PathBuf,
    contents: Contents,
}

impl Flattener {
    /// Adds the keys below `section`. The YAML parser limits the depth of the document, and so of this recursion.
    fn flatten(&mut self, section: &str, pairs: &[(Node, Node)]) -> Result<(), YamlError> {
        let mut lines = HashMap::new();
        for (key, value) in pairs {
            let line = key.line;
            let Content::Scalar(Scalar { text: name, .. }) = &key.content else {
                return Err(YamlError { line, reason: "a key is text, not a list or a map".to_owned() });
            };
            if let Some(first) = lines.insert(name, line) {
                return Err(YamlError {
                    line,
                    reason: format!("'{name}' is given here and on line {first}"),
                });
            }
            let key = if section.is_empty() { name.to_string() } else { format!("{section}.{name}") };
            let origin = Origin::File { path: self.path.clone(), line };
            if name.contains('.') {
                self.contents.problems.push(SettingProblem { key, origin, fault: Fault::Dotted });
                continue;
            }
            let value = match &value.content {
                Content::Map(pairs) if !pairs.is_empty() => {
                    self.flatten(&key, pairs)?;
                    continue;
                }
                Content::Map(_) => RawValue::Null,
                Content::List(nodes) => RawValue::List(nodes.to_vec()),
                Content::Scalar(scalar) => raw_scalar(scalar),
            };
            self.contents.layer.insert(key, RawSetting { value, origin });
        }
        Ok(())
    }
}

fn raw_scalar(scalar: &Scalar) -> RawValue {
    match &*scalar.text {
        "" if scalar.is_plain => RawValue::Empty,
        _ if scalar.is_null() => RawValue::Null,
        text => RawValue::Text(text.to_owned()),
    }
}
