//! Whether the environment is read as one of `envoyproxy/ratelimit`, and why.

use std::fmt;

use super::table;
pub(crate) use crate::settings::layers::{Layer, RawValue};
use crate::settings::service_link::is_service_link;

/// The setting that decides, if it is not `auto`.
pub(crate) const ASKED: &str = "envoy_ratelimit_environment";

/// The name of the program of `envoyproxy/ratelimit`.
const PROGRAM: &str = "ratelimit";

/// The values of [`ASKED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The name of the program and the variables decide.
    Auto,
    On,
    Off,
}

pub(crate) fn asked_values() -> [(&'static str, Asked); 3] {
    [("auto", Asked::Auto), ("on", Asked::On), ("off", Asked::Off)]
}

/// Whether the environment was read as one of `envoyproxy/ratelimit`, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvironmentUse {
    /// No variable of `envoyproxy/ratelimit` is set.
    Absent,
    /// The program was called by the name of `envoyproxy/ratelimit`.
    ReadForName,
    /// The setting `envoy_ratelimit_environment` says so, in this place.
    ReadForSetting(String),
    /// This variable is set, which only `envoyproxy/ratelimit` has.
    ReadForVariable(&'static str),
    /// The setting forbids it. These variables are set.
    Forbidden(Vec<&'static str>),
    /// Only these variables are set, whose names other programs use, too.
    Common(Vec<&'static str>),
}

impl EnvironmentUse {
    /// `layer`: the settings of ours.
    pub(crate) fn decide(called_as: Option<&str>, layer: &Layer, variables: &[(String, String)]) -> Self {
        let mut set: Vec<_> = variables
            .iter()
            .filter(|(name, value)| !is_service_link(name, value))
            .filter_map(|(name, _)| table::find(name))
            .collect();
        set.sort_by_key(|variable| variable.name);
        let names = || set.iter().map(|variable| variable.name).collect::<Vec<_>>();
        let written = layer.get(ASKED);
        let asked = written.and_then(|written| match &written.value {
            RawValue::Text(text) => asked_values().into_iter().find(|(name, _)| name == text),
            _ => None,
        });
        match (asked.map(|(_, asked)| asked), written) {
            (Some(Asked::On), Some(written)) => Self::ReadForSetting(written.origin.to_string()),
            (Some(Asked::Off), _) if !set.is_empty() => Self::Forbidden(names()),
            (Some(Asked::Off), _) => Self::Absent,
            _ if called_as == Some(PROGRAM) => Self::ReadForName,
            _ => match set.iter().find(|variable| variable.is_telling) {
                Some(variable) => Self::ReadForVariable(variable.name),
                None if set.is_empty() => Self::Absent,
                None => Self::Common(names()),
            },
        }
    }

    /// Whether the variables are read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self, Self::ReadForName | Self::ReadForSetting(_) | Self::ReadForVariable(_))
    }
}

/// One line for the log; empty if no variable is set.
impl fmt::Display for EnvironmentUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const READ: &str = "the environment is read as one of envoyproxy/ratelimit";
        const NOT_READ: &str = "the variables of envoyproxy/ratelimit are not read";
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
