//! What an operator wants to know about the settings in force besides their values.

use super::error::Origin;
use crate::reference::variables::EnvironmentUse;

/// Where the settings in force come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsReport {
    /// Whether the environment was read as one of `envoyproxy/ratelimit`.
    pub environment: EnvironmentUse,
    /// Values that have no effect, one line each.
    pub warnings: Vec<String>,
    /// The variables of `envoyproxy/ratelimit` that were read.
    pub variables: Vec<&'static str>,
    /// Every setting, in the order of the documentation.
    pub settings: Vec<SettingInForce>,
}

/// The value of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingInForce {
    pub key: &'static str,
    /// As it was written; a secret is masked.
    pub value: String,
    /// Whether the value hides a secret, so that it is not the setting's value.
    pub is_masked: bool,
    pub origin: Origin,
    /// Whether the value is the compiled-in default, wherever it was written.
    pub is_default: bool,
}
