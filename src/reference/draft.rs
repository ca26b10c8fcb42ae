//! A translation in progress.

use std::collections::BTreeMap;

use config::Value;

use super::table;
use super::values::Values;
use super::variable::{Effect, ReferenceVariable};
use crate::settings::{SettingProblem, variable_origin};

/// Variables that deployments set although `envoyproxy/ratelimit` does not read them, each with the reason.
pub(super) const NOT_READ: [(&str, &str); 3] = [
    (
        "GRPC_SERVER_TLS_CA_CERT",
        "envoyproxy/ratelimit does not read it either; client certificates are not asked for",
    ),
    ("REDIS_POOL_ON_EMPTY_WAIT_DURATION", "envoyproxy/ratelimit no longer reads it"),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION", "envoyproxy/ratelimit no longer reads it"),
];

/// The settings that an environment of `envoyproxy/ratelimit` means.
#[derive(Debug, Default)]
pub(super) struct Translation {
    /// By the keys of our settings.
    pub(super) layer: BTreeMap<String, Meant>,
    pub(super) problems: Vec<SettingProblem>,
    pub(super) warnings: Vec<String>,
    /// The variables that are set to values that can be used.
    pub(super) variables: Vec<&'static str>,
}

/// The value of a setting of ours that the environment means.
#[derive(Debug)]
pub(super) struct Meant {
    pub(super) text: String,
    /// The variables that decide the value.
    pub(super) variables: String,
    /// Whether at least one of them is set. If not, the value suits a service without them.
    pub(super) is_set: bool,
}

impl Meant {
    pub(super) fn into_value(self) -> Value {
        let origin = if self.is_set {
            variable_origin(&self.variables)
        } else {
            format!("as envoyproxy/ratelimit without {}", self.variables)
        };
        Value::new(Some(&origin), self.text)
    }
}

#[derive(Debug)]
pub(super) struct Draft {
    pub(super) values: Values,
    layer: BTreeMap<String, Meant>,
}

impl Draft {
    pub(super) fn new(values: Values) -> Self {
        Self { values, layer: BTreeMap::new() }
    }

    /// Sets a setting of ours. `variables`: where the value comes from.
    pub(super) fn set(&mut self, key: &str, text: impl Into<String>, variables: &[&'static str]) {
        let set: Vec<_> = variables.iter().copied().filter(|name| self.values.is_set(name)).collect();
        let is_set = !set.is_empty();
        let variables = if is_set { set.join(", ") } else { variables.join(", ") };
        self.layer.insert(key.to_owned(), Meant { text: text.into(), variables, is_set });
    }

    /// Sets a setting of ours to what suits an environment without `missing`.
    pub(super) fn set_default(&mut self, key: &str, text: &str, missing: &str) {
        let meant = Meant { text: text.to_owned(), variables: missing.to_owned(), is_set: false };
        self.layer.insert(key.to_owned(), meant);
    }

    /// Sets a setting of ours if the variable is set.
    pub(super) fn set_if_given(&mut self, key: &str, text: impl Into<String>, variable: &'static str) {
        if self.values.is_set(variable) {
            self.set(key, text, &[variable]);
        }
    }

    /// Adds a warning for each variable that is set without a meaning here. The variables of libraries are not among
    /// them, because other programs of the machine read these: see
    /// [`warn_about_libraries`](Self::warn_about_libraries).
    pub(super) fn warn_about_meaningless(&mut self) {
        self.warn_about_each(table::find);
    }

    /// Adds the same warnings for the variables of a library. `prefix`: the start of their names.
    pub(super) fn warn_about_libraries(&mut self, prefix: &str) {
        self.warn_about_each(|name| table::find_of_library(name).filter(|_| name.starts_with(prefix)));
    }

    fn warn_about_each(&mut self, find: impl Fn(&str) -> Option<&'static ReferenceVariable>) {
        let set: Vec<_> = self.values.names().filter_map(find).collect();
        for variable in set {
            let name = variable.name;
            match variable.effect {
                Effect::Sets(_) => {}
                Effect::Meaningless(reason) => {
                    self.values.warn(format!("{name} has no meaning here: {}", plain(reason)));
                }
            }
        }
    }

    pub(super) fn warn_about_unread<'v>(&mut self, names: impl IntoIterator<Item = &'v str>) {
        for name in names {
            if let Some((_, reason)) = NOT_READ.iter().find(|(unread, _)| *unread == name) {
                self.values.warn(format!("{name} is not read: {reason}"));
            }
        }
    }

    pub(super) fn finish(self) -> Translation {
        let variables = self.values.names().collect();
        let Values { problems, warnings, .. } = self.values;
        Translation { layer: self.layer, problems, warnings, variables }
    }
}

/// A reason without the marks of the documentation.
fn plain(reason: &str) -> String {
    reason.replace('`', "")
}
