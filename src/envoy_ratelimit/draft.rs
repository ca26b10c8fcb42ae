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

    /// Adds a warning for each of these variables that is set: without `condition` it has no meaning.
    pub(super) fn warn_without(&mut self, condition: &str, names: &[&'static str]) {
        for name in names {
            if self.values.is_set(name) {
                self.values.warn(format!("{name} has no meaning without {condition}"));
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
        self.warn_about_each(|name| table::find_of_library(name).filter(|_| name.starts_with(prefix)));
    }

    fn warn_about_each(&mut self, find: impl Fn(&str) -> Option<&'static RatelimitVariable>) {
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

/// Each mogrifier has variables that begin so.
pub(super) const MOGRIFIER_PREFIX: &str = "DOG_STATSD_MOGRIFIER_";

/// The texts of the variables that are set and well-formed. Any other variable has its default.
#[derive(Debug, Default)]
pub(super) struct Values {
    set: BTreeMap<&'static str, String>,
    /// The variables of mogrifiers, whose names are not known beforehand.
    mogrifiers: BTreeMap<String, String>,
    /// Values that cannot be read.
    pub(super) problems: Vec<SettingProblem>,
    /// Values that are passed over, each with the reason.
    pub(super) warnings: Vec<String>,
}

impl Values {
    pub(super) fn new<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> Self {
        let mut values = Self::default();
        for (name, text) in variables {
            if let Some(variable) = known(name) {
                values.add(variable, text);
            } else if name.starts_with(MOGRIFIER_PREFIX) {
                values.mogrifiers.insert(name.to_owned(), text.to_owned());
            }
        }
        values
    }

    fn add(&mut self, variable: &'static RatelimitVariable, text: &str) {
        let name = variable.name;
        if is_service_link(name, text) {
            let reason = "Kubernetes sets it for a service of that name, so it is passed over";
            self.warnings.push(format!("{name}: {reason}"));
        } else if text.is_empty() && variable.kind.refuses_empty() {
            // Not "it has its default": some of our defaults are not those of `envoyproxy/ratelimit`.
            self.warnings.push(format!("{name} is empty, so it is as if it were not set"));
        } else if is_well_formed(variable.kind, text) {
            self.set.insert(name, text.to_owned());
        } else {
            self.add_problem(variable, text, variable.kind.expected().to_owned());
        }
    }

    /// Adds the problem that a value, though well-formed, is none of those that are expected.
    pub(super) fn refuse(&mut self, name: &'static str, expected: impl Into<String>) {
        let variable = known(name).expect("a constant of this module, and a test reads them all");
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

    /// The variables that are set, in the order of their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.set.keys().copied()
    }

    pub(super) fn text(&self, name: &str) -> &str {
        let default = || known(name).map_or("", |variable| variable.default);
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

fn known(name: &str) -> Option<&'static RatelimitVariable> {
    table::find(name).or_else(|| table::find_of_library(name))
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
