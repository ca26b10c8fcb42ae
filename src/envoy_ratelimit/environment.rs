//! Decides whether the environment is read as one of `envoyproxy/ratelimit`, why, and which value wins if both it and
//! ratelimitd's own settings set a key.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use config::{Value, ValueKind};

use super::draft::Meant;
use super::table;
use crate::settings::{Settings, Written, is_service_link};

/// The setting that decides, unless it is `auto`.
const ASKED: &str = "envoy_ratelimit_environment";

/// Program name of `envoyproxy/ratelimit`.
const PROGRAM: &str = "ratelimit";

/// Rules from a path and rules from a server exclude each other.
const PATH: &str = "rules.path";
const XDS: &str = "rules.xds.address";

/// Whether the environment was read as one of `envoyproxy/ratelimit`, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentUse {
    /// No variable of `envoyproxy/ratelimit` is set.
    Absent,
    /// The program was called by the name of `envoyproxy/ratelimit`.
    ReadForName,
    /// The setting `envoy_ratelimit_environment` requires it, with this origin.
    ReadForSetting(String),
    /// This variable is set, which only `envoyproxy/ratelimit` has.
    ReadForVariable(&'static str),
    /// The setting forbids it. These variables are set.
    Forbidden(Vec<&'static str>),
    /// Only these variables are set, whose names other programs also use.
    Common(Vec<&'static str>),
}

impl EnvironmentUse {
    /// `called_as`: the name of this program.
    pub(crate) fn decide(called_as: Option<&str>, written: &Written) -> Self {
        let mut set: Vec<_> = written
            .variables
            .iter()
            .filter(|(name, value)| !is_service_link(name, value))
            .filter_map(|(name, _)| table::find(name))
            .collect();
        set.sort_by_key(|variable| variable.name);
        let names = || set.iter().map(|variable| variable.name).collect::<Vec<_>>();
        let asked = written.get(ASKED);
        match asked.and_then(text) {
            Some("on") => Self::ReadForSetting(asked.and_then(Value::origin).unwrap_or_default().to_owned()),
            Some("off") if set.is_empty() => Self::Absent,
            Some("off") => Self::Forbidden(names()),
            _ if called_as == Some(PROGRAM) => Self::ReadForName,
            _ => match set.iter().find(|variable| variable.is_telling) {
                Some(variable) => Self::ReadForVariable(variable.name),
                None if set.is_empty() => Self::Absent,
                None => Self::Common(names()),
            },
        }
    }

    /// `true` if the variables are read.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::ReadForName | Self::ReadForSetting(_) | Self::ReadForVariable(_))
    }
}

/// One log line; empty if no variable is set.
impl fmt::Display for EnvironmentUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const READ: &str = "reading the environment like envoyproxy/ratelimit";
        const NOT_READ: &str = "ignoring the variables of envoyproxy/ratelimit";
        match self {
            Self::Absent => Ok(()),
            Self::ReadForName => write!(f, "{READ}: this program was called {PROGRAM}"),
            Self::ReadForSetting(origin) => write!(f, "{READ}: {ASKED} is on ({origin})"),
            Self::ReadForVariable(name) => {
                write!(f, "{READ}: {name} is set, which only envoyproxy/ratelimit has")
            }
            Self::Forbidden(names) => write!(f, "{NOT_READ}: {ASKED} is off; set are {}", names.join(", ")),
            Self::Common(names) => write!(
                f,
                "{NOT_READ}: other programs use the names {}, too; set {ASKED} to on to read them, or to off",
                names.join(", ")
            ),
        }
    }
}

/// Adds the translated settings. If both set a key, ratelimitd's own setting wins, with a warning. A value of the
/// settings file that only repeats the default does not count as set: the shipped file contains every setting.
pub(super) fn add_layer(written: &mut Written, translated: BTreeMap<String, Meant>) {
    let catalogue = Settings::catalogue();
    let defaults: HashMap<&str, &str> =
        catalogue.iter().map(|setting| (&*setting.key, setting.default)).collect();
    let repeats_default = |written: &Written, key: &str| {
        let value = written.file.get(key).filter(|_| !written.environment.contains_key(key));
        value.and_then(text) == defaults.get(key).copied()
    };
    if translated.contains_key(XDS) && repeats_default(written, PATH) {
        written.file.remove(PATH);
    }
    for (key, theirs) in translated {
        let ours = written.get(&key).filter(|_| !repeats_default(written, &key));
        match ours.map(|ours| overruled(&key, ours, &theirs)) {
            Some(warning) => written.warnings.extend(warning),
            None => {
                written.derived.insert(key, theirs.into_value());
            }
        }
    }
}

/// Returns a value as a string. A key without a value is the empty string.
fn text(value: &Value) -> Option<&str> {
    match &value.kind {
        ValueKind::String(text) => Some(text),
        ValueKind::Nil => Some(""),
        _ => None,
    }
}

/// `None` if `theirs` is a default, or both are equal.
fn overruled(key: &str, ours: &Value, theirs: &Meant) -> Option<String> {
    let is_same = matches!(&ours.kind, ValueKind::String(text) if *text == theirs.text);
    let place = ours.origin().unwrap_or_default();
    let warning = || format!("{}: not used, because {key} is set ({place})", theirs.variables);
    (theirs.is_set && !is_same).then(warning)
}
