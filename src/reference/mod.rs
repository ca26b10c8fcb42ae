//! The environment variables of `envoyproxy/ratelimit`, translated to settings of ours, so that the service can replace
//! it without a change of the environment.
//!
//! `table` lists every variable and what it does here; `environment` says whether the variables are read, and which
//! settings win; the other files translate the values.

mod draft;
mod environment;
mod go_syntax;
mod limits;
mod listeners;
mod metrics;
mod redis;
mod redis_table;
mod rules;
mod stats_table;
mod statsd;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod traces;
mod variable;

use std::path::Path;

pub use environment::EnvironmentUse;
pub use variable::ReferenceVariable;

use crate::settings::{Settings, SettingsError, SettingsReport, Written, process_variables};
use draft::{Draft, Translation, Values};

/// Settings that were read with the variables of `envoyproxy/ratelimit`, where they are meant.
#[derive(Clone, Debug)]
pub struct LoadedSettings {
    pub settings: Settings,
    pub report: SettingsReport,
    /// Whether the environment was read as one of `envoyproxy/ratelimit`.
    pub environment: EnvironmentUse,
    /// The variables of `envoyproxy/ratelimit` that were read.
    pub variables: Vec<&'static str>,
}

/// Loads the settings from the file, if one is given, and the process environment. `called_as`: the name of the
/// program, which may decide whether the variables of `envoyproxy/ratelimit` are read.
///
/// # Errors
/// [`SettingsError`]: the file that cannot be read, or every key that is unknown or malformed.
pub fn load_settings(file: Option<&Path>, called_as: Option<&str>) -> Result<LoadedSettings, SettingsError> {
    load_settings_with(file, process_variables(is_known)?, called_as)
}

/// Like [`load_settings`], with the given environment variables.
///
/// # Errors
/// As [`load_settings`].
pub fn load_settings_with(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    called_as: Option<&str>,
) -> Result<LoadedSettings, SettingsError> {
    let mut written = Written::collect(file, variables)?;
    let environment = EnvironmentUse::decide(called_as, &written);
    let mut variables = Vec::new();
    if environment.is_read() {
        let texts = written.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let translation = translate(texts);
        variables = environment::add_translated(&mut written, translation);
    }
    let (settings, report) = Settings::load(written)?;
    Ok(LoadedSettings { settings, report, environment, variables })
}

/// Every variable of `envoyproxy/ratelimit`, in the order of the documentation.
#[must_use]
pub fn reference_variables() -> Vec<ReferenceVariable> {
    table::all().chain(table::of_libraries()).copied().collect()
}

/// Whether a variable of this name belongs to `envoyproxy/ratelimit`, or did once.
fn is_known(name: &str) -> bool {
    table::find(name).is_some()
        || table::find_of_library(name).is_some()
        || name.starts_with(draft::MOGRIFIER_PREFIX)
        || draft::NOT_READ.iter().any(|(known, _)| *known == name)
}

/// Translates the variables. Those that are not set have the defaults of `envoyproxy/ratelimit` where another default
/// would change which limits are in force.
fn translate<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)> + Clone) -> Translation {
    let mut draft = Draft::new(Values::new(variables.clone()));
    listeners::translate(&mut draft);
    rules::translate(&mut draft);
    limits::translate(&mut draft);
    redis::translate(&mut draft);
    metrics::translate(&mut draft);
    statsd::translate(&mut draft);
    traces::translate(&mut draft);
    draft.warn_about_meaningless();
    draft.warn_about_unread(variables.into_iter().map(|(name, _)| name));
    draft.finish()
}
