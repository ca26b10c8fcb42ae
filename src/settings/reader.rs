//! Takes setting after setting from what was written, notes what is wrong, and keeps the list of all settings.

use super::error::{Fault, Origin, Problem, Problems, SettingsError};
use super::kinds::Kind;
use super::layers::{self, Form, Layer};

/// The longest part of a value that an error repeats, in characters.
const LONGEST_FOUND: usize = 60;

/// One setting, as the documentation lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key with its sections, `store.redis.timeout`.
    pub key: &'static str,
    /// The environment variable that sets it.
    pub variable: String,
    /// The default as it would be written.
    pub default: &'static str,
    /// The values it takes, in words.
    pub expected: String,
}

/// What was written and has not been taken yet, and what was found out so far.
#[derive(Debug, Default)]
pub(super) struct Reader {
    written: Layer,
    settings: Vec<Setting>,
    problems: Vec<Problem>,
}

impl Reader {
    /// `problems`: what is wrong with what was written, whatever settings there are.
    pub(super) fn new(written: Layer, problems: Vec<Problem>) -> Self {
        Self { written, problems, ..Self::default() }
    }

    /// The setting's value; its default where nothing, or nothing usable, was written.
    pub(super) fn read<T>(&mut self, key: &'static str, default: &'static str, kind: Kind<T>) -> T {
        let written = self.written.remove(key);
        self.settings.push(Setting {
            key,
            variable: layers::variable(key),
            default,
            expected: kind.expected.clone(),
        });
        let fallback = || kind.parse(default).expect("every default is valid: a test reads them all");
        let Some(written) = written else {
            return fallback();
        };
        let text = match &written.value {
            Form::Text(text) => Some(text.as_str()),
            Form::Nothing if default.is_empty() => Some(default),
            Form::Nothing | Form::Null | Form::List => None,
        };
        if let Some(value) = text.and_then(|text| kind.parse(text)) {
            return value;
        }
        let found = match &written.value {
            Form::Text(text) => (!kind.secret).then(|| quoted(text)),
            Form::Nothing => Some("nothing".to_owned()),
            Form::Null => Some("null, which is no text unless in quotes".to_owned()),
            Form::List => Some("a list".to_owned()),
        };
        let expected = kind.expected.clone();
        self.problems.push(Problem {
            key: key.to_owned(),
            origin: written.origin,
            fault: Fault::Malformed { expected, found },
        });
        fallback()
    }

    /// Where a setting was written. To be asked before it is read.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.written.get(key).map_or(Origin::Default, |written| written.origin.clone())
    }

    /// Notes a problem that only shows once a value, or several together, are understood.
    pub(super) fn refuse(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(super) fn into_settings(self) -> Vec<Setting> {
        self.settings
    }

    /// To be called when every setting is read: what is left over is unknown.
    pub(super) fn finish(mut self) -> Result<(), SettingsError> {
        for (key, written) in std::mem::take(&mut self.written) {
            let inside = self.names_in(&key);
            let fault = match written.value {
                // `section:` with everything in it commented out.
                Form::Nothing | Form::Null if !inside.is_empty() => continue,
                _ if !inside.is_empty() => Fault::Section { instead: inside },
                _ => Fault::Unknown { instead: self.names_near(&key) },
            };
            self.problems.push(Problem { key, origin: written.origin, fault });
        }
        if self.problems.is_empty() {
            return Ok(());
        }
        self.problems.sort_by(|a, b| a.key.cmp(&b.key));
        Err(SettingsError::Invalid(Problems(self.problems)))
    }

    /// The names of the nearest section around an unknown key.
    fn names_near(&self, key: &str) -> Vec<String> {
        let sections = std::iter::successors(Some(key), |key| Some(key.rsplit_once('.')?.0));
        let mut names = sections.skip(1).map(|section| self.names_in(section));
        names.find(|names| !names.is_empty()).unwrap_or_else(|| self.names_in(""))
    }

    /// The names directly inside a section; of the whole when it is empty; none where there is no such section.
    fn names_in(&self, section: &str) -> Vec<String> {
        let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
        let inside = self.settings.iter().filter_map(|setting| setting.key.strip_prefix(&prefix));
        let mut names: Vec<String> =
            inside.filter_map(|rest| rest.split('.').next()).map(str::to_owned).collect();
        names.dedup();
        names
    }
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(LONGEST_FOUND).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{more}")
}
