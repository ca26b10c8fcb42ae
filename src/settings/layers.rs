//! What was written, and where, as flat dotted keys with text for values; and what the environment says.

use std::collections::{BTreeMap, HashMap};

use config::{Environment, Source};

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
    /// A scalar as it is spelt: every setting is read from text, wherever it was written.
    Text(String),
    /// A key with nothing after it.
    Nothing,
    /// A key with YAML's own word for nothing, or an empty map: whoever writes that does not mean a text.
    Null,
    /// A list; no setting takes one.
    List,
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    let name = key.to_uppercase().replace('.', SEPARATOR);
    format!("{PREFIX}{SEPARATOR}{name}")
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
