//! A translation in progress.

use super::table;
use super::values::Values;
use super::variable::{Effect, ReferenceVariable};
pub(crate) use crate::settings::error::{Origin, SettingProblem};
pub(crate) use crate::settings::layers::{Layer, RawSetting, RawValue};

/// Variables that estates set and that `envoyproxy/ratelimit` does not read, each with the reason.
pub(super) const NOT_READ_THERE: [(&str, &str); 3] = [
    (
        "GRPC_SERVER_TLS_CA_CERT",
        "envoyproxy/ratelimit does not read it either; client certificates are not asked for",
    ),
    ("REDIS_POOL_ON_EMPTY_WAIT_DURATION", "envoyproxy/ratelimit no longer reads it"),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION", "envoyproxy/ratelimit no longer reads it"),
];

/// The settings that an environment of `envoyproxy/ratelimit` means.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    pub(crate) layer: Layer,
    pub(crate) problems: Vec<SettingProblem>,
    pub(crate) warnings: Vec<String>,
    /// The variables that are set to values that can be used.
    pub(crate) variables: Vec<&'static str>,
}

#[derive(Debug)]
pub(super) struct Draft {
    pub(super) values: Values,
    layer: Layer,
}

impl Draft {
    pub(super) fn new(values: Values) -> Self {
        Self { values, layer: Layer::default() }
    }

    /// Sets a setting of ours. `variables`: where the value comes from.
    pub(super) fn set(&mut self, key: &str, text: impl Into<String>, variables: &[&'static str]) {
        let set: Vec<_> = variables.iter().copied().filter(|name| self.values.is_set(name)).collect();
        let origin = if set.is_empty() {
            Origin::ReferenceDefault(variables.join(", "))
        } else {
            Origin::Variable(set.join(", "))
        };
        self.layer.insert(key.to_owned(), RawSetting { value: RawValue::Text(text.into()), origin });
    }

    /// Sets a setting of ours to what suits the environment; `missing` is not there.
    pub(super) fn set_default(&mut self, key: &str, text: &str, missing: &str) {
        let origin = Origin::ReferenceDefault(missing.to_owned());
        self.layer.insert(key.to_owned(), RawSetting { value: RawValue::Text(text.to_owned()), origin });
    }

    /// Sets a setting of ours if the variable is set.
    pub(super) fn set_if_given(&mut self, key: &str, text: impl Into<String>, variable: &'static str) {
        if self.values.is_set(variable) {
            self.set(key, text, &[variable]);
        }
    }

    /// Adds a warning for each variable that is set without a meaning here. Other programs of the machine read those of
    /// libraries: whoever uses such a library warns by [`warn_about_libraries`](Self::warn_about_libraries).
    pub(super) fn warn_about_meaningless(&mut self) {
        self.warn_about_each(table::find);
    }

    /// The same for the variables of libraries, of which the names begin so.
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
            if let Some((_, reason)) = NOT_READ_THERE.iter().find(|(unread, _)| *unread == name) {
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
