//! A translation in progress: the variables' values, each checked by its type, and the settings that they set.

use std::collections::BTreeMap;
use std::time::Duration;

use config::Value;

use super::go_syntax::{parse_duration, parse_flag, parse_map, parse_whole};
use super::table;
use super::variable::{Effect, RatelimitVariable, ValueKind};
use crate::settings::{Fault, SettingProblem, is_service_link, quoted, variable_origin};

/// Variables that deployments set although `envoyproxy/ratelimit` does not read them, each with the reason.
pub(super) const NOT_READ: [(&str, &str); 3] = [
    (
        "GRPC_SERVER_TLS_CA_CERT",
        "envoyproxy/ratelimit does not read it either; client certificates are not asked for",
    ),
    ("REDIS_POOL_ON_EMPTY_WAIT_DURATION", "envoyproxy/ratelimit no longer reads it"),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION", "envoyproxy/ratelimit no longer reads it"),
];

/// Prefix of each mogrifier's variables.
pub(super) const MOGRIFIER_PREFIX: &str = "DOG_STATSD_MOGRIFIER_";

/// A value that the environment gives to a ratelimitd setting.
#[derive(Debug)]
pub(super) struct Meant {
    pub(super) text: String,
    /// Variables that decide the value.
    pub(super) variables: String,
    /// `true` if at least one of them is set. If not, the value is for an environment without them.
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

/// The translation so far. An unset or malformed variable has its default.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The settings from the environment, by ratelimitd key.
    pub(super) layer: BTreeMap<String, Meant>,
    /// Variables that are set to valid values.
    pub(super) set: BTreeMap<&'static str, String>,
    /// Variables of mogrifiers, whose names are not known in advance.
    mogrifiers: BTreeMap<String, String>,
    /// Malformed values.
    pub(super) problems: Vec<SettingProblem>,
    /// Ignored values, each with the reason.
    pub(super) warnings: Vec<String>,
}

impl Draft {
    pub(super) fn new(variables: &[(String, String)]) -> Self {
        let mut draft = Self::default();
        for (name, text) in variables {
            if let Some(variable) = table::known(name) {
                draft.add(variable, text);
            } else if name.starts_with(MOGRIFIER_PREFIX) {
                draft.mogrifiers.insert(name.clone(), text.clone());
            }
        }
        draft
    }

    fn add(&mut self, variable: &'static RatelimitVariable, text: &str) {
        let name = variable.name;
        if is_service_link(name, text) {
            let reason = "Kubernetes sets it for a service of that name, so it is passed over";
            self.warn(format!("{name}: {reason}"));
        } else if text.is_empty() && variable.kind.refuses_empty() {
            // Not "it has its default": some defaults of ratelimitd and `envoyproxy/ratelimit` differ.
            self.warn(format!("{name} is empty, so it is as if it were not set"));
        } else if is_well_formed(variable.kind, text) {
            self.set.insert(name, text.to_owned());
        } else {
            self.add_problem(variable, text, variable.kind.expected().to_owned());
        }
    }

    /// Sets a ratelimitd setting. `variables`: where the value comes from.
    pub(super) fn set(&mut self, key: &str, text: impl Into<String>, variables: &[&'static str]) {
        let set: Vec<_> = variables.iter().copied().filter(|name| self.is_set(name)).collect();
        let is_set = !set.is_empty();
        let variables = if is_set { set.join(", ") } else { variables.join(", ") };
        self.layer.insert(key.to_owned(), Meant { text: text.into(), variables, is_set });
    }

    /// Sets a ratelimitd setting to a value for an environment without `missing`.
    pub(super) fn set_default(&mut self, key: &str, text: &str, missing: &str) {
        let meant = Meant { text: text.to_owned(), variables: missing.to_owned(), is_set: false };
        self.layer.insert(key.to_owned(), meant);
    }

    /// Sets a ratelimitd setting if the variable is set.
    pub(super) fn set_if_given(&mut self, key: &str, text: impl Into<String>, variable: &'static str) {
        if self.is_set(variable) {
            self.set(key, text, &[variable]);
        }
    }

    /// Copies the variable's value to a ratelimitd setting, if it is set.
    pub(super) fn copy_text(&mut self, key: &str, variable: &'static str) {
        self.set_if_given(key, self.text(variable).to_owned(), variable);
    }

    /// Copies the variable's value to a ratelimitd setting, unless it is empty. Returns `true` if it was set.
    pub(super) fn copy_if_not_empty(&mut self, key: &str, variable: &'static str) -> bool {
        let text = self.text(variable).to_owned();
        let is_set = !text.is_empty();
        if is_set {
            self.set(key, text, &[variable]);
        }
        is_set
    }

    /// Sets a ratelimitd setting to true or false, if the variable is set.
    pub(super) fn copy_flag(&mut self, key: &str, variable: &'static str) {
        self.set_if_given(key, self.flag(variable).to_string(), variable);
    }

    /// Warns of each of these variables that is set: without `condition` it has no effect.
    pub(super) fn warn_without(&mut self, condition: &str, names: &[&'static str]) {
        for name in names {
            if self.is_set(name) {
                self.warn(format!("{name} has no effect without {condition}"));
            }
        }
    }

    /// Warns of each variable that is set but has no effect in ratelimitd. Variables of libraries are left out, because
    /// other programs of the machine read them: see [`warn_about_libraries`](Self::warn_about_libraries).
    pub(super) fn warn_about_meaningless(&mut self) {
        self.warn_about_each(table::find);
    }

    /// Warns in the same way of a library's variables. `prefix`: the start of their names.
    pub(super) fn warn_about_libraries(&mut self, prefix: &str) {
        self.warn_about_each(|name| table::known(name).filter(|_| name.starts_with(prefix)));
    }

    fn warn_about_each(&mut self, find: impl Fn(&str) -> Option<&'static RatelimitVariable>) {
        for RatelimitVariable { name, effect, .. } in self.set.keys().filter_map(|name| find(name)) {
            if let Effect::Meaningless(reason) = effect {
                // Without the documentation's backquotes.
                let reason = reason.replace('`', "");
                self.warnings.push(format!("{name} is ignored: {reason}"));
            }
        }
    }

    pub(super) fn warn_about_unread(&mut self, variables: &[(String, String)]) {
        for (name, _) in variables {
            if let Some((_, reason)) = NOT_READ.iter().find(|(unread, _)| unread == name) {
                self.warn(format!("{name} is not read: {reason}"));
            }
        }
    }

    /// Adds a problem for a value that is well-formed, but not accepted.
    pub(super) fn refuse(&mut self, name: &'static str, expected: impl Into<String>) {
        let variable = table::known(name).expect("a constant of this module, and a test reads them all");
        let text = self.text(name).to_owned();
        self.add_problem(variable, &text, expected.into());
    }

    fn add_problem(&mut self, variable: &RatelimitVariable, text: &str, expected: String) {
        let found = (!variable.is_secret).then(|| quoted(text));
        self.problems.push(SettingProblem {
            key: variable.name.to_owned(),
            origin: variable_origin(variable.name),
            fault: Fault::Malformed { expected, found },
        });
    }

    pub(super) fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// `true` if the variable is set to a valid value.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        let default = || table::known(name).map_or("", |variable| variable.default);
        self.set.get(name).map_or_else(default, String::as_str)
    }

    /// Returns a mogrifier variable's value; empty if not set.
    pub(super) fn mogrifier_text(&self, name: &str) -> &str {
        self.mogrifiers.get(name).map_or("", String::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        parse_flag(self.text(name)).unwrap_or_default()
    }

    pub(super) fn whole(&self, name: &str) -> i64 {
        parse_whole(self.text(name)).unwrap_or_default()
    }

    pub(super) fn duration(&self, name: &str) -> Duration {
        parse_duration(self.text(name)).unwrap_or_default()
    }
}

fn is_well_formed(kind: ValueKind, text: &str) -> bool {
    match kind {
        // A list cannot be malformed either: anything between two commas is an element.
        ValueKind::Text | ValueKind::List => true,
        ValueKind::Flag => parse_flag(text).is_some(),
        ValueKind::Whole => parse_whole(text).is_some(),
        ValueKind::Decimal => text.parse::<f64>().is_ok_and(f64::is_finite),
        ValueKind::Duration => parse_duration(text).is_some(),
        ValueKind::Map => parse_map(text).is_some(),
    }
}
