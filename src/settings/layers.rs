//! Collects what was written, and where: the file and the environment, as flat dotted keys with text for values.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use config::{ConfigError, Environment, File, FileFormat, Source, Value, ValueKind};

use super::{Origin, SettingsError};

/// In front of every variable of ours; two underscores stand between levels, one belongs to a name.
const PREFIX: &str = "RATELIMITD";
const SEPARATOR: &str = "__";

/// By dotted key. A later layer replaces an earlier one key by key.
pub(super) type Layer = BTreeMap<String, Written>;

/// One value as it was written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) value: Form,
    pub(super) origin: Origin,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    /// A scalar, whatever its type: every setting has a spelling as text.
    Text(String),
    /// A key with nothing after it.
    Nothing,
    /// A list; no setting takes one.
    List,
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    let name = key.to_uppercase().replace('.', SEPARATOR);
    format!("{PREFIX}{SEPARATOR}{name}")
}

/// What the file says.
pub(super) fn file(path: &Path) -> Result<Layer, SettingsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| SettingsError::Unreadable { path: path.to_owned(), cause })?;
    let tree = File::from_str(&text, FileFormat::Yaml).collect().map_err(|cause| unusable(path, cause))?;
    let mut layer = Layer::new();
    for (key, value) in tree {
        flatten(&mut layer, key, value.kind, &Origin::File(path.to_owned()));
    }
    Ok(layer)
}

fn unusable(path: &Path, cause: ConfigError) -> SettingsError {
    let path = path.to_owned();
    let ConfigError::FileParse { cause: inner, .. } = &cause else {
        return SettingsError::Syntax { path, cause };
    };
    // Of the causes, only a root of another type is an error of the crate's own, and it is boxed twice.
    match inner.downcast_ref::<Box<ConfigError>>() {
        Some(_) => SettingsError::NotSections { path },
        _ => SettingsError::Syntax { path, cause },
    }
}

fn flatten(layer: &mut Layer, key: String, kind: ValueKind, origin: &Origin) {
    let value = match kind {
        ValueKind::Table(table) if !table.is_empty() => {
            for (name, Value { kind, .. }) in table {
                flatten(layer, format!("{key}.{name}"), kind, origin);
            }
            return;
        }
        ValueKind::Table(_) | ValueKind::Nil => Form::Nothing,
        ValueKind::Array(_) => Form::List,
        // A float prints the shortest text that reads as the same float: what was written, up to 15 digits.
        scalar => Form::Text(scalar.to_string()),
    };
    layer.insert(key, Written { value, origin: origin.clone() });
}

/// What those variables say that begin with our prefix.
pub(super) fn environment(
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Layer, SettingsError> {
    let variables: HashMap<String, String> = variables.into_iter().collect();
    let source = Environment::with_prefix(PREFIX)
        .prefix_separator(SEPARATOR)
        .separator(SEPARATOR)
        .source(Some(variables));
    // The variables are text already, so collecting them cannot fail today; a failure would name the variable.
    let values = source.collect().map_err(|cause| SettingsError::Environment { cause })?;
    let written = values.into_iter().map(|(key, value)| {
        let origin = Origin::Variable(variable(&key));
        let value = Form::Text(value.kind.to_string());
        (key, Written { value, origin })
    });
    Ok(written.collect())
}

/// The variables of this process that are ours.
pub(super) fn process_environment() -> Result<Vec<(String, String)>, SettingsError> {
    let ours = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.to_uppercase().starts_with(&format!("{PREFIX}{SEPARATOR}")).then_some((name, value))
    });
    ours.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(SettingsError::NotText { variable: name }),
    })
    .collect()
}
