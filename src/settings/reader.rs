//! Takes one setting after another from the layers, and collects the problems and the list of all settings.

use rules::yaml::{self, Content, Node, excerpt};

use super::error::{Fault, Origin, SettingProblem, SettingProblems, SettingsError};
use super::layers::{self, Layer, RawSetting, RawValue};
use super::parsers::Parser;
use super::report::SettingInForce;

/// One setting, as the documentation lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key with its sections, `store.redis.timeout`.
    pub key: &'static str,
    /// The environment variable that sets it.
    pub variable: String,
    /// The default as it would be written.
    pub default: &'static str,
    /// The values that it takes.
    pub expected: String,
}

/// The values that were not taken yet, and the settings and problems found so far.
#[derive(Debug, Default)]
pub(super) struct Reader {
    written: Layer,
    settings: Vec<Setting>,
    /// The settings whose values are secret.
    secrets: Vec<&'static str>,
    problems: Vec<SettingProblem>,
    in_force: Vec<SettingInForce>,
}

impl Reader {
    /// `problems`: problems of `written` that do not depend on the list of settings.
    pub(super) fn new(written: Layer, problems: Vec<SettingProblem>) -> Self {
        Self { written, problems, ..Self::default() }
    }

    /// The setting's value. A setting that was not written has its default; so has a malformed one, which is recorded
    /// as a problem.
    pub(super) fn take<T>(&mut self, key: &'static str, default: &'static str, parser: Parser<T>) -> T {
        let written = self.written.remove(key);
        self.settings.push(Setting {
            key,
            variable: layers::variable(key),
            default,
            expected: parser.expected.clone(),
        });
        if parser.is_secret {
            self.secrets.push(key);
        }
        let fallback = || parser.parse(default).expect("every default is valid: a test reads them all");
        let mut in_force = SettingInForce {
            key,
            value: parser.shown(default),
            is_masked: false,
            origin: Origin::Default,
            is_default: true,
        };
        let Some(written) = written else {
            self.in_force.push(in_force);
            return fallback();
        };
        let text = match &written.value {
            RawValue::Text(text) => Some(text.as_str()),
            RawValue::Empty if default.is_empty() => Some(default),
            RawValue::Empty | RawValue::Null | RawValue::List(_) => None,
        };
        if let Some((text, value)) = text.and_then(|text| Some((text, parser.parse(text)?))) {
            in_force.value = parser.shown(text);
            in_force.is_masked = in_force.value != text;
            in_force.is_default = text == default;
            in_force.origin = written.origin;
            self.in_force.push(in_force);
            return value;
        }
        let found = match &written.value {
            RawValue::Text(text) => (!parser.is_secret).then(|| quoted(text)),
            RawValue::Empty => Some("nothing".to_owned()),
            RawValue::Null => Some("null, which is no text unless in quotes".to_owned()),
            RawValue::List(_) => Some("a list".to_owned()),
        };
        let expected = parser.expected.clone();
        self.problems.push(SettingProblem {
            key: key.to_owned(),
            origin: written.origin,
            fault: Fault::Malformed { expected, found },
        });
        fallback()
    }

    /// The elements of a setting that is a list, and where it was written; `None` if it was not. As text, such as in a
    /// variable, the list is YAML.
    pub(super) fn take_list(&mut self, key: &'static str, expected: String) -> Option<(Vec<Node>, Origin)> {
        let variable = layers::variable(key);
        self.settings.push(Setting { key, variable, default: "[]", expected: expected.clone() });
        let mut in_force = SettingInForce {
            key,
            value: "[]".to_owned(),
            origin: Origin::Default,
            is_default: true,
            is_masked: false,
        };
        let Some(RawSetting { value, origin }) = self.written.remove(key) else {
            self.in_force.push(in_force);
            return None;
        };
        let (elements, found, shown) = match value {
            RawValue::List(elements) => {
                let shown = format!("a list of {}", elements.len());
                (Some(elements), String::new(), shown)
            }
            RawValue::Text(text) => (list_of(&text), quoted(&text), text),
            RawValue::Empty | RawValue::Null => (None, "nothing".to_owned(), String::new()),
        };
        let Some(elements) = elements else {
            let fault = Fault::Malformed { expected, found: Some(found) };
            self.problems.push(SettingProblem { key: key.to_owned(), origin, fault });
            return None;
        };
        in_force.value = shown;
        in_force.is_default = elements.is_empty();
        in_force.origin = origin.clone();
        self.in_force.push(in_force);
        Some((elements, origin))
    }

    /// Where a setting was written. Call it before [`Self::take`].
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.written.get(key).map_or(Origin::Default, |written| written.origin.clone())
    }

    /// Adds a problem of values that are valid alone, but not together.
    pub(super) fn refuse(&mut self, problem: SettingProblem) {
        self.problems.push(problem);
    }

    /// Refuses a variable if only its underscores keep it from being a setting. Call it after the last
    /// [`Self::take`].
    pub(super) fn refuse_misspelled(&mut self, name: &str) {
        let meant = self.settings.iter().find(|setting| layers::is_misspelled(name, &setting.variable));
        if let Some(Setting { key, variable, .. }) = meant {
            let fault = Fault::Underscores { variable: variable.clone() };
            let origin = Origin::Variable(name.to_owned());
            self.problems.push(SettingProblem { key: (*key).to_owned(), origin, fault });
            // Not an unknown key as well.
            layers::key(name).and_then(|key| self.written.remove(&key));
        }
    }

    /// The values taken so far.
    pub(super) fn take_in_force(&mut self) -> Vec<SettingInForce> {
        std::mem::take(&mut self.in_force)
    }

    pub(super) fn into_settings(self) -> Vec<Setting> {
        self.settings
    }

    /// Call it after the last [`Self::take`]: every key that is left is unknown.
    pub(super) fn finish(mut self) -> Result<(), SettingsError> {
        for (key, written) in std::mem::take(&mut self.written) {
            let inside = self.names_in(&key);
            let fault = match written.value {
                // `section:` with all its keys commented out.
                RawValue::Empty | RawValue::Null if !inside.is_empty() => continue,
                _ if !inside.is_empty() => Fault::Section { known: inside },
                _ => Fault::Unknown { known: self.names_near(&key) },
            };
            self.problems.push(SettingProblem { key, origin: written.origin, fault });
        }
        if self.problems.is_empty() {
            return Ok(());
        }
        let problems = std::mem::take(&mut self.problems);
        self.problems = problems.into_iter().map(|problem| self.without_secrets(problem)).collect();
        self.problems.sort_by(|a, b| a.key.cmp(&b.key));
        self.problems.dedup();
        Err(SettingsError::Invalid(SettingProblems(self.problems)))
    }

    /// `password: {SECRET: x}` makes the secret a part of a key.
    fn without_secrets(&self, problem: SettingProblem) -> SettingProblem {
        let is_within = |secret: &&&str| {
            let rest = problem.key.strip_prefix(**secret);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        match self.secrets.iter().find(is_within) {
            Some(secret) => SettingProblem {
                key: (*secret).to_owned(),
                origin: problem.origin,
                fault: Fault::Malformed { expected: "text".to_owned(), found: Some("a section".to_owned()) },
            },
            None => problem,
        }
    }

    /// The names in the innermost known section around an unknown key.
    fn names_near(&self, key: &str) -> Vec<String> {
        let sections = std::iter::successors(Some(key), |key| Some(key.rsplit_once('.')?.0));
        let mut names = sections.skip(1).map(|section| self.names_in(section));
        names.find(|names| !names.is_empty()).unwrap_or_else(|| self.names_in(""))
    }

    /// The names directly in `section`; `""` is the top. Empty if there is no such section.
    fn names_in(&self, section: &str) -> Vec<String> {
        let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
        let inside = self.settings.iter().filter_map(|setting| setting.key.strip_prefix(&prefix));
        let mut names: Vec<String> =
            inside.filter_map(|rest| rest.split('.').next()).map(str::to_owned).collect();
        names.dedup();
        names
    }
}

/// The elements of a list in YAML.
fn list_of(text: &str) -> Option<Vec<Node>> {
    match yaml::parse(text).ok()?.root?.content {
        Content::List(elements) => Some(elements.to_vec()),
        Content::Scalar(_) | Content::Map(_) => None,
    }
}

/// A value in the wrong place may be a URL with a password.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains("://") || text.contains('@') {
        return "a value that is not shown, because it may contain a password".to_owned();
    }
    let (start, more) = excerpt(text);
    format!("{start:?}{more}")
}
