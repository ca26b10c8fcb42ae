//! Loads the settings, as the first step of every sub-command that needs them, from the file and the environment, which
//! can be one of `envoyproxy/ratelimit`.

use std::path::Path;

use crate::envoy_ratelimit::{EnvironmentUse, add_translated, is_known};
use crate::settings::{Settings, SettingsError, SettingsReport, Written, process_variables};

/// The settings, and how the environment was read.
#[derive(Clone, Debug)]
pub struct LoadedSettings {
    pub settings: Settings,
    pub report: SettingsReport,
    /// How the environment was read: as one of `envoyproxy/ratelimit`, or not.
    pub environment: EnvironmentUse,
    /// Variables of `envoyproxy/ratelimit` that were read.
    pub variables: Vec<&'static str>,
}

/// Loads the settings from the file, if given, and the process environment. `called_as`: the program's name, which can
/// decide whether the variables of `envoyproxy/ratelimit` are read.
///
/// # Errors
/// [`SettingsError`]: an unreadable file, or every unknown or malformed key.
pub fn load_settings(file: Option<&Path>, called_as: Option<&str>) -> Result<LoadedSettings, SettingsError> {
    load_settings_with(file, process_variables(is_known)?, called_as)
}

/// Like [`load_settings`], with the given environment variables.
///
/// # Errors
/// As for [`load_settings`].
pub fn load_settings_with(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    called_as: Option<&str>,
) -> Result<LoadedSettings, SettingsError> {
    let mut written = Written::collect(file, variables)?;
    let environment = EnvironmentUse::decide(called_as, &written);
    let variables = if environment.is_read() { add_translated(&mut written) } else { Vec::new() };
    let (settings, report) = Settings::load(written)?;
    Ok(LoadedSettings { settings, report, environment, variables })
}
