//! What can be wrong with settings, told so that it can be put right: the key, where it was written, what was expected.

use std::fmt;
use std::path::PathBuf;

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("settings file {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The file is not YAML.
    #[error("settings file {}:{line}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where.
        line: u32,
        /// What the parser says. It does not repeat values.
        reason: String,
    },
    /// The file is YAML, but not keys with values.
    #[error("settings file {}: expected sections with keys at the top, like `server:`", path.display())]
    NotSections {
        /// The file.
        path: PathBuf,
    },
    /// The environment cannot be read.
    #[error("environment: {cause}")]
    Environment {
        /// What is wrong with it.
        cause: config::ConfigError,
    },
    /// A variable of ours does not hold text.
    #[error("environment variable {variable}: its value is not UTF-8")]
    NotText {
        /// Its name.
        variable: String,
    },
    /// Keys that are unknown or values that are malformed: all of them.
    #[error("{0}")]
    Invalid(Problems),
}

/// Everything that is wrong, in the order of the keys. Not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key with its sections, `store.redis.timeout`.
    pub key: String,
    /// Where it was written.
    pub origin: Origin,
    /// What is wrong with it.
    pub fault: Fault,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: compiled in.
    Default,
    /// In the settings file.
    File {
        /// The file.
        path: PathBuf,
        /// The line of the key.
        line: u32,
    },
    /// In the environment variable of that name.
    Variable(String),
}

/// What is wrong with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No setting has that name.
    Unknown {
        /// The names there are in its section.
        instead: Vec<String>,
    },
    /// It is the name of a section, but one value was given.
    Section {
        /// The names in it.
        instead: Vec<String>,
    },
    /// It has dots in it, which do not nest.
    Dotted,
    /// The value is none of those the setting takes.
    Malformed {
        /// What it takes.
        expected: String,
        /// What was written, shortened; values that may hold a password are left out.
        found: Option<String>,
    },
    /// The value is understood, but what it asks for does not exist.
    Unsupported(&'static str),
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings cannot be used:")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.key, self.fault, self.origin)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File { path, line } => write!(f, "file {}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { instead } => write!(f, "no such setting; there is {}", instead.join(", ")),
            Self::Section { instead } => {
                write!(f, "a section, not a value; in it there is {}", instead.join(", "))
            }
            Self::Dotted => f.write_str(
                "one key with dots in it; nest it instead, each section on a line of its own, indented below the one before",
            ),
            Self::Malformed { expected, found: Some(found) } => {
                write!(f, "expected {expected}, found {found}")
            }
            Self::Malformed { expected, found: None } => write!(f, "expected {expected}"),
            Self::Unsupported(what) => f.write_str(what),
        }
    }
}
