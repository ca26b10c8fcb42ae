//! A layer of settings: flat dotted keys with the text of each value and its origin. Reads the environment's layer.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;

use config::{Environment, Source};
use rules::yaml::Node;

use super::{Origin, SettingsError};

/// Every variable of ours starts with this prefix. Two underscores separate levels, one is part of a name.
pub(super) const PREFIX: &str = "RATELIMITD";
pub(super) const SEPARATOR: &str = "__";

/// By dotted key. A later layer replaces an earlier one key by key.
pub(crate) type Layer = BTreeMap<String, RawSetting>;

#[derive(Clone, Debug)]
pub(crate) struct RawSetting {
    pub(crate) value: RawValue,
    pub(crate) origin: Origin,
}

/// A value before the setting's parser sees it.
#[derive(Clone, Debug)]
pub(crate) enum RawValue {
    /// A scalar as it is spelled: every setting is parsed from text.
    Text(String),
    /// A key with nothing after the colon: the empty text, where that is the setting's default.
    Empty,
    /// `null`, `~` or `{}`: an error for every setting.
    Null,
    /// A list: an error for every setting but the tables.
    List(Vec<Node>),
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    let name = key.to_uppercase().replace('.', SEPARATOR);
    format!("{PREFIX}{SEPARATOR}{name}")
}

/// The layer of the given variables. Variables without our prefix are ignored.
pub(super) fn environment(
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Layer, SettingsError> {
    let variables: HashMap<String, String> = variables.into_iter().collect();
    let source = Environment::with_prefix(PREFIX)
        .prefix_separator(SEPARATOR)
        .separator(SEPARATOR)
        .source(Some(variables));
    // Cannot fail today, because the variables are text already; an error would name the variable.
    let values = source.collect().map_err(|cause| SettingsError::Environment { cause })?;
    let settings = values.into_iter().map(|(key, value)| {
        let origin = Origin::Variable(variable(&key));
        let value = RawValue::Text(value.kind.to_string());
        (key, RawSetting { value, origin })
    });
    Ok(settings.collect())
}

/// Whether only the number of underscores keeps `name` from being `variable`, the variable of a setting.
pub(super) fn is_misspelled(name: &str, variable: &str) -> bool {
    let words = |name: &str| {
        let words = name.split('_').filter(|word| !word.is_empty());
        words.map(str::to_uppercase).collect::<Vec<_>>()
    };
    !name.eq_ignore_ascii_case(variable) && words(name) == words(variable)
}

/// The key that a variable sets, if it has our prefix.
pub(super) fn key(variable: &str) -> Option<String> {
    let name = variable.to_lowercase();
    let prefix = format!("{PREFIX}{SEPARATOR}").to_lowercase();
    name.strip_prefix(&prefix).map(|key| key.replace(SEPARATOR, "."))
}

/// The variables of this process that have our prefix, or part of it, and those that `is_known`.
pub(super) fn process_environment(
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, SettingsError> {
    let prefix = format!("{PREFIX}_");
    let read =
        process_variables().filter(|(name, _)| name.to_uppercase().starts_with(&prefix) || is_known(name));
    read.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(SettingsError::NotText { variable: name }),
    })
    .collect()
}

/// The variables of this process whose names are text.
fn process_variables() -> impl Iterator<Item = (String, OsString)> {
    #[expect(clippy::disallowed_methods, reason = "the only reader of the environment")]
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
}
