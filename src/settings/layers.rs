//! Layers of settings: from the file, from the environment, and derived by other modules. Each layer is checked key by
//! key; then `config` merges the layers on top of the catalogue's defaults.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use config::{Config, ConfigError, Environment, Source as _, Value, ValueKind};

use super::error::{Fault, SettingProblem, SettingsError};
use super::file::{Contents, Layer, read_file};

/// Prefix of the service's variables. Two underscores separate levels, a single one is part of a name.
const PREFIX: &str = "RATELIMITD";
const SEPARATOR: &str = "__";

/// A setting as documented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// With its sections: `store.redis.timeout`.
    pub key: String,
    /// Environment variable of the setting.
    pub variable: String,
    /// As it would be written.
    pub default: &'static str,
    /// Accepted values.
    pub expected: String,
    /// `true` if the value must not be shown.
    pub is_secret: bool,
}

/// Everything that was written, unchecked. A value can be a password, so there is no `Debug`.
#[derive(Default)]
pub struct Written {
    /// Environment variables, including those that are not settings.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) file: Layer,
    pub(crate) environment: Layer,
    /// Settings that another module derives from the variables. They override the file and the environment.
    pub(crate) derived: Layer,
    pub(crate) problems: Vec<SettingProblem>,
    /// Values without effect, one line each.
    pub(crate) warnings: Vec<String>,
}

/// The current values, and problems with keys that are not settings.
pub(super) struct Merged {
    pub(super) config: Config,
    pub(super) problems: Vec<SettingProblem>,
    pub(super) warnings: Vec<String>,
}

impl Written {
    /// Reads the file, if given. Variables that do not start with `RATELIMITD__` are ignored, except misspelled ones
    /// such as `RATELIMITD_STORE_KIND`.
    ///
    /// # Errors
    /// [`SettingsError`]: the file is unreadable, or not YAML.
    pub fn collect(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let Contents { layer: file, problems } = file.map(read_file).transpose()?.unwrap_or_default();
        let variables: Vec<_> = variables.into_iter().collect();
        let environment = environment(&variables)?;
        Ok(Self { variables, file, environment, problems, ..Self::default() })
    }

    /// Returns a setting's value in the environment or the file.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.environment.get(key).or_else(|| self.file.get(key))
    }

    /// Merges the layers on top of the catalogue's defaults.
    pub(super) fn merge(mut self, catalogue: &[Setting]) -> Result<Merged, ConfigError> {
        self.warnings.extend(unread_variables(&self.variables));
        self.refuse_misspelled(catalogue);
        self.refuse_repeated();
        let mut builder = Config::builder();
        for setting in catalogue {
            builder = builder.set_default(&setting.key, setting.default)?;
        }
        let Self { file, environment, derived, mut problems, warnings, .. } = self;
        for mut layer in [file, environment, derived] {
            problems.extend(take_misplaced(&mut layer, catalogue));
            for (key, value) in layer {
                builder = builder.set_override(key, value)?;
            }
        }
        let problems = problems.into_iter().map(|problem| without_secrets(problem, catalogue)).collect();
        Ok(Merged { config: builder.build()?, problems, warnings })
    }

    /// Refuses variables that are wrong only in their underscores.
    fn refuse_misspelled(&mut self, catalogue: &[Setting]) {
        for (name, _) in &self.variables {
            let meant = catalogue.iter().find(|setting| is_misspelled(name, &setting.variable));
            if let Some(Setting { key, variable, .. }) = meant {
                let fault = Fault::Underscores { variable: variable.clone() };
                self.problems.push(SettingProblem { key: key.clone(), origin: variable_origin(name), fault });
                // So that the key is not also reported as unknown.
                key_of(name).and_then(|key| self.environment.remove(&key));
            }
        }
    }

    /// Refuses a second variable of a key: names are read in any case.
    fn refuse_repeated(&mut self) {
        let mut firsts = HashMap::new();
        for (name, _) in &self.variables {
            let Some(key) = key_of(name) else { continue };
            if let Some(first) = firsts.insert(key.clone(), name) {
                let fault = Fault::Repeated { other: first.clone() };
                self.problems.push(SettingProblem { key, origin: variable_origin(name), fault });
            }
        }
    }
}

/// Returns the layer of variables with the prefix. `config` would give all of them the same origin; this gives each its
/// name.
fn environment(variables: &[(String, String)]) -> Result<Layer, ConfigError> {
    let source = Environment::with_prefix(PREFIX)
        .prefix_separator(SEPARATOR)
        .separator(SEPARATOR)
        .source(Some(variables.iter().cloned().collect()));
    let named = |(key, value): (String, Value)| {
        let origin = variable_origin(&variable(&key));
        (key, Value::new(Some(&origin), value.kind))
    };
    Ok(source.collect()?.into_iter().map(named).collect())
}

/// The environment variable of a key.
pub(super) fn variable(key: &str) -> String {
    let name = key.to_uppercase().replace('.', SEPARATOR);
    format!("{PREFIX}{SEPARATOR}{name}")
}

/// The origin of a value that comes from one or several variables.
pub(crate) fn variable_origin(names: &str) -> String {
    format!("environment variable {names}")
}

/// Returns the key that a variable sets, if it has the prefix.
fn key_of(variable: &str) -> Option<String> {
    let name = variable.to_lowercase();
    let prefix = format!("{PREFIX}{SEPARATOR}").to_lowercase();
    name.strip_prefix(&prefix).map(|key| key.replace(SEPARATOR, "."))
}

/// `true` if `name` differs from `variable`, a setting's variable, only in its number of underscores.
fn is_misspelled(name: &str, variable: &str) -> bool {
    let words = |name: &str| {
        let words = name.split('_').filter(|word| !word.is_empty());
        words.map(str::to_uppercase).collect::<Vec<_>>()
    };
    !name.eq_ignore_ascii_case(variable) && words(name) == words(variable)
}

/// Returns this process's variables that have the prefix, or part of it, or for which `is_known` is `true`.
///
/// # Errors
/// [`SettingsError::NotText`]: the value of one of them is not UTF-8.
pub(crate) fn process_variables(
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, SettingsError> {
    let prefix = format!("{PREFIX}_");
    let read = all_variables().filter(|(name, _)| name.to_uppercase().starts_with(&prefix) || is_known(name));
    read.map(|(name, value)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(SettingsError::NotText { variable: name }),
    })
    .collect()
}

/// This process's variables whose names are UTF-8.
fn all_variables() -> impl Iterator<Item = (String, OsString)> {
    #[expect(clippy::disallowed_methods, reason = "the only reader of the environment")]
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
}

/// Warns of each variable without effect whose name promises one. Does not quote the value, which can be a password.
fn unread_variables(variables: &[(String, String)]) -> Vec<String> {
    let is_unread = |(name, value): &&(String, String)| {
        let name = name.to_uppercase();
        let starts_like_ours = name.starts_with(&format!("{PREFIX}_"));
        // Variables with two underscores are read, or refused with the other settings.
        let is_ours = name.starts_with(&format!("{PREFIX}{SEPARATOR}"));
        starts_like_ours && !is_ours && !is_service_link(&name, value)
    };
    let mut unread: Vec<_> = variables.iter().filter(is_unread).map(|(name, _)| name).collect();
    unread.sort();
    let warning = |name| {
        format!(
            "environment variable {name} is ignored: settings are named {PREFIX}{SEPARATOR}SECTION{SEPARATOR}KEY"
        )
    };
    unread.into_iter().map(warning).collect()
}

/// `true` if Kubernetes sets the variable for a service, such as `RATELIMITD_PORT=tcp://10.0.0.1:8081`,
/// `RATELIMITD_SERVICE_HOST` and `RATELIMITD_PORT_8081_TCP_ADDR`; a service named `grpc` sets `GRPC_PORT`.
pub(crate) fn is_service_link(name: &str, value: &str) -> bool {
    let has_parts = ["_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|part| name.contains(part));
    let (_, after_port) = name.rsplit_once("_PORT_").unwrap_or_default();
    let is_of_port = after_port.starts_with(|first: char| first.is_ascii_digit());
    has_parts || is_of_port || (name.ends_with("_PORT") && value.contains("://"))
}

/// Removes from a layer the keys that are not settings, and settings that are null. Each is a problem, except for a
/// section without keys. Must happen before the merge: if one layer has a value for a section and another one has keys
/// inside it, `config` would keep only one of the two.
fn take_misplaced(layer: &mut Layer, catalogue: &[Setting]) -> Vec<SettingProblem> {
    let mut problems = Vec::new();
    layer.retain(|key, value| {
        let fault = match catalogue.iter().find(|setting| setting.key == *key) {
            Some(setting) if matches!(value.kind, ValueKind::Table(_)) => Fault::Malformed {
                expected: setting.expected.clone(),
                found: Some("null, which is a string only in quotes".to_owned()),
            },
            Some(_) => return true,
            None => match (names_in(catalogue, key), &value.kind) {
                (inside, _) if inside.is_empty() => unknown_name(catalogue, key),
                // `section:` with all its keys commented out.
                (_, ValueKind::Nil | ValueKind::Table(_)) => return false,
                (inside, _) => Fault::Section { known: inside.into_iter().map(str::to_owned).collect() },
            },
        };
        let origin = value.origin().unwrap_or_default().to_owned();
        problems.push(SettingProblem { key: key.clone(), origin, fault });
        false
    });
    problems
}

/// `password: {SECRET: x}` turns the secret into a part of a key.
fn without_secrets(problem: SettingProblem, catalogue: &[Setting]) -> SettingProblem {
    let is_around = |secret: &&Setting| {
        let rest = problem.key.strip_prefix(&secret.key);
        secret.is_secret && rest.is_some_and(|rest| rest.starts_with('.'))
    };
    match catalogue.iter().find(is_around) {
        Some(secret) => SettingProblem {
            key: secret.key.clone(),
            origin: problem.origin,
            fault: Fault::Malformed { expected: "text".to_owned(), found: Some("a section".to_owned()) },
        },
        None => problem,
    }
}

/// Reports the first name of an unknown key that is missing in its innermost known section.
fn unknown_name(catalogue: &[Setting], key: &str) -> Fault {
    let sections = std::iter::successors(Some(key), |key| Some(key.rsplit_once('.')?.0));
    let inner = sections.skip(1).find(|section| !names_in(catalogue, section).is_empty());
    let section = inner.unwrap_or_default();
    let rest = key[section.len()..].trim_start_matches('.');
    let name = rest.split('.').next().unwrap_or_default();
    Fault::unknown(name, &names_in(catalogue, section))
}

/// Returns the names directly in `section`; `""` is the top. Empty if there is no such section.
fn names_in<'c>(catalogue: &'c [Setting], section: &str) -> Vec<&'c str> {
    let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
    let inside = catalogue.iter().filter_map(|setting| setting.key.strip_prefix(&prefix));
    let mut names: Vec<&str> = Vec::new();
    for name in inside.filter_map(|rest| rest.split('.').next()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use config::Map;

    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_value_for_a_section_is_a_problem_also_where_another_layer_has_keys_inside() {
        let layer = |key: &str, origin: &str| {
            let value = Value::new(Some(&origin.to_owned()), "10ms");
            Layer::from([(key.to_owned(), value)])
        };
        for (file, environment) in
            [("store.redis", "store.redis.timeout"), ("store.redis.timeout", "store.redis")]
        {
            let (file, environment) = (layer(file, "file"), layer(environment, "variable"));
            let written = Written { file, environment, ..Written::default() };
            let error = Settings::load(written).expect_err("a section").to_string();
            assert!(error.contains("store.redis: a section, not a value"), "{error}");
        }
    }

    #[test]
    fn null_is_refused_also_where_a_variable_replaces_it() {
        let origin = "file".to_owned();
        let null = Value::new(Some(&origin), Map::<String, Value>::new());
        let text = Value::new(Some(&origin), "redis");
        let written = Written {
            file: Layer::from([("store.kind".to_owned(), null)]),
            environment: Layer::from([("store.kind".to_owned(), text)]),
            ..Written::default()
        };
        let error = Settings::load(written).expect_err("null").to_string();
        assert!(error.contains("store.kind: expected one of memory, redis, found null"), "{error}");
    }

    fn warnings(variables: &[(&str, &str)]) -> Vec<String> {
        let variables: Vec<_> =
            variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        unread_variables(&variables)
    }
    #[test]
    fn names_that_start_like_ours_are_told() {
        let set = [
            ("RATELIMITD_STORE_KNID", "redis"),
            ("PATH", "/bin"),
            ("REDIS_PASSWORD", "hunter2"),
            ("RATELIMITD__STORE__KIND", "redis"),
        ];
        let expected = ["environment variable RATELIMITD_STORE_KNID is ignored: settings are named \
              RATELIMITD__SECTION__KEY"];
        assert_eq!(warnings(&set), expected);
    }

    #[test]
    fn variables_that_kubernetes_sets_for_services_are_not_told() {
        let links = [
            ("RATELIMITD_PORT", "tcp://10.0.0.1:8081"),
            ("RATELIMITD_SERVICE_HOST", "10.0.0.1"),
            ("RATELIMITD_SERVICE_PORT", "8081"),
            ("RATELIMITD_SERVICE_PORT_GRPC", "8081"),
            ("RATELIMITD_PORT_8081_TCP", "tcp://10.0.0.1:8081"),
            ("RATELIMITD_PORT_8081_TCP_ADDR", "10.0.0.1"),
            ("RATELIMITD_ADMIN_PORT", "tcp://10.0.0.2:6070"),
        ];
        assert_eq!(warnings(&links), [""; 0]);
        assert_eq!(warnings(&[("RATELIMITD_PORT", "8081")]).len(), 1);
    }
}
