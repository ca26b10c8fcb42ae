//! The values of the variables that are set, checked one by one. Knows their types, not their meaning.

use std::collections::BTreeMap;
use std::time::Duration;

use super::go_syntax::{parse_duration, parse_flag, parse_map, parse_whole};
use super::table;
use super::variable::{ReferenceVariable, ValueKind};
use crate::settings::{Fault, SettingProblem, is_service_link, quoted, variable_origin};

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

    fn add(&mut self, variable: &'static ReferenceVariable, text: &str) {
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

    fn add_problem(&mut self, variable: &ReferenceVariable, text: &str, expected: String) {
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

fn known(name: &str) -> Option<&'static ReferenceVariable> {
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
