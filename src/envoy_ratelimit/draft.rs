//! A translation in progress: the values of the variables that are set, checked one by one by their types, and the
//! settings that they mean.

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

/// Each mogrifier has variables that begin so.
pub(super) const MOGRIFIER_PREFIX: &str = "DOG_STATSD_MOGRIFIER_";

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

/// What is translated so far. A variable that is not set, or not well-formed, has its default.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The settings that the environment means, by the keys of our settings.
    pub(super) layer: BTreeMap<String, Meant>,
    /// The texts of the variables that are set to values that can be used.
    pub(super) set: BTreeMap<&'static str, String>,
    /// The variables of mogrifiers, whose names are not known beforehand.
    mogrifiers: BTreeMap<String, String>,
    /// Values that cannot be read.
    pub(super) problems: Vec<SettingProblem>,
    /// Values that are passed over, each with the reason.
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
            // Not "it has its default": some of our defaults are not those of `envoyproxy/ratelimit`.
            self.warn(format!("{name} is empty, so it is as if it were not set"));
        } else if is_well_formed(variable.kind, text) {
            self.set.insert(name, text.to_owned());
        } else {
            self.add_problem(variable, text, variable.kind.expected().to_owned());
        }
    }

    /// Sets a setting of ours. `variables`: where the value comes from.
    pub(super) fn set(&mut self, key: &str, text: impl Into<String>, variables: &[&'static str]) {
        let set: Vec<_> = variables.iter().copied().filter(|name| self.is_set(name)).collect();
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
        if self.is_set(variable) {
            self.set(key, text, &[variable]);
        }
    }

    /// Sets a setting of ours to the text of the variable, if it is set.
    pub(super) fn copy_text(&mut self, key: &str, variable: &'static str) {
        self.set_if_given(key, self.text(variable).to_owned(), variable);
    }

    /// Sets a setting of ours to the text of the variable, unless it is empty. Returns whether it was set.
    pub(super) fn copy_if_not_empty(&mut self, key: &str, variable: &'static str) -> bool {
        let text = self.text(variable).to_owned();
        let is_set = !text.is_empty();
        if is_set {
            self.set(key, text, &[variable]);
        }
        is_set
    }

    /// Sets a setting of ours to true or false, if the variable is set.
    pub(super) fn copy_flag(&mut self, key: &str, variable: &'static str) {
        self.set_if_given(key, self.flag(variable).to_string(), variable);
    }

    /// Adds a warning for each of these variables that is set: without `condition` it has no meaning.
    pub(super) fn warn_without(&mut self, condition: &str, names: &[&'static str]) {
        for name in names {
            if self.is_set(name) {
                self.warn(format!("{name} has no effect without {condition}"));
            }
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
        self.warn_about_each(|name| table::known(name).filter(|_| name.starts_with(prefix)));
    }

    fn warn_about_each(&mut self, find: impl Fn(&str) -> Option<&'static RatelimitVariable>) {
        for RatelimitVariable { name, effect, .. } in self.set.keys().filter_map(|name| find(name)) {
            if let Effect::Meaningless(reason) = effect {
                // Without the marks of the documentation.
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

    /// Adds the problem that a value, though well-formed, is none of those that are expected.
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

    /// Whether the variable is set to a value that can be used.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        let default = || table::known(name).map_or("", |variable| variable.default);
        self.set.get(name).map_or_else(default, String::as_str)
    }

    /// The text of a variable of a mogrifier; empty if it is not set.
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
        // A list cannot be malformed either: each text between two commas is an element.
        ValueKind::Text | ValueKind::List => true,
        ValueKind::Flag => parse_flag(text).is_some(),
        ValueKind::Whole => parse_whole(text).is_some(),
        ValueKind::Decimal => text.parse::<f64>().is_ok_and(f64::is_finite),
        ValueKind::Duration => parse_duration(text).is_some(),
        ValueKind::Map => parse_map(text).is_some(),
    }
}
