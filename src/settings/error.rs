//! Settings errors. Each names the key, where its value was written, and the accepted values.

use std::fmt;
use std::path::PathBuf;

use rules::nearest_name;
use rules::yaml::excerpt;

/// Maximum problems per message: a wrong file has thousands.
const MAX_LISTED: usize = 100;

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("settings file {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
    /// The file is not YAML. `reason` is the parser's message, which quotes no values.
    #[error("settings file {}:{line}: {reason}", path.display())]
    Syntax { path: PathBuf, line: u32, reason: String },
    /// The file is YAML, but its root is not a map.
    #[error("settings file {}: expected sections with keys at the top, like `server:`", path.display())]
    NotSections { path: PathBuf },
    #[error("cannot merge the settings: {0}")]
    Merge(#[from] config::ConfigError),
    #[error("environment variable {variable}: its value is not UTF-8")]
    NotText { variable: String },
    /// All unknown keys and malformed values.
    #[error("{0}")]
    Invalid(SettingProblems),
}

/// All problems, sorted by key. Not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingProblems(pub Vec<SettingProblem>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {fault} ({origin})")]
pub struct SettingProblem {
    /// With its sections: `store.redis.timeout`.
    pub key: String,
    /// Where the value was written, for people.
    pub origin: String,
    pub fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No setting has this name. `meant`: the most similar name in its section; `known`: all of them.
    #[error("no such setting; {}", match meant {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("known settings: {}", known.join(", ")),
    })]
    Unknown { meant: Option<String>, known: Vec<String> },
    /// A section was given a value. `known`: the names in the section.
    #[error("a section, not a value; known settings: {}", known.join(", "))]
    Section { known: Vec<String> },
    /// The variable has too few or too many underscores. `variable`: the right name.
    #[error("two underscores separate the levels of a key: {variable}")]
    Underscores { variable: String },
    /// The names of two variables differ only in their case.
    #[error("also set by {other}; remove one of them")]
    Repeated { other: String },
    /// The key contains dots. Sections are nested maps, never dotted keys.
    #[error(
        "one key with dots in it; nest it instead, each section on a line of its own, indented below the one before"
    )]
    Dotted,
    /// The value is not one that the setting accepts. `found` is shortened, and missing for secrets.
    #[error("expected {expected}{}", found.as_ref().map(|found| format!(", found {found}")).unwrap_or_default())]
    Malformed { expected: String, found: Option<String> },
    /// The value is valid alone, but not together with other settings.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl Fault {
    /// `known`: the names in the section of `name`.
    pub(super) fn unknown(name: &str, known: &[&str]) -> Self {
        let meant = nearest_name(name, known).map(str::to_owned);
        Self::Unknown { meant, known: known.iter().map(|&name| name.to_owned()).collect() }
    }
}

impl fmt::Display for SettingProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid settings:")?;
        self.0.iter().take(MAX_LISTED).try_for_each(|problem| write!(f, "\n  {problem}"))?;
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// A misplaced value can be a URL with a password.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains("://") || text.contains('@') {
        return "a value that may contain a password (hidden)".to_owned();
    }
    let (start, more) = excerpt(text);
    format!("{start:?}{more}")
}
