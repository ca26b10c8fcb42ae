//! The options of every sub-command that loads rule files. It loads them as a service with the same settings does.

use std::path::PathBuf;

use clap::Args;
use rules::LoadOptions;

use super::service_connection::block_on;
use crate::app::{ReadRules, ReadRulesError, load_options, read_rules};
use crate::reference::load_settings;
use crate::settings::{KeyFileError, Settings, SettingsError};

/// Options of `validate`, `explain`, `replay` and `simulate`.
#[derive(Clone, Debug, Default, Args)]
pub struct RuleOptions {
    /// Settings file whose `defaults`, `upgrades`, `secrets` and `rules` apply
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Let several files name the same domain, as rules.merge_domains does
    #[arg(long)]
    pub merge_domains: bool,
}

/// Why rule files cannot be read as a service would read them.
#[derive(Debug, thiserror::Error)]
pub enum RuleOptionsError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    HashKey(#[from] KeyFileError),
}

impl RuleOptions {
    /// Reads the settings from the file, if `--config` names one, and from the environment.
    ///
    /// # Errors
    /// [`RuleOptionsError`] if the settings are invalid, or `secrets.key_file` has no key.
    pub fn load(&self) -> Result<LoadOptions, RuleOptionsError> {
        Ok(self.load_options(&self.settings()?)?)
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// [`SettingsError`] if the settings are invalid.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        Ok(load_settings(self.config.as_deref(), None)?.settings)
    }

    /// The options of `settings`, or those of the command line where it has them.
    ///
    /// # Errors
    /// [`KeyFileError`] if `secrets.key_file` has no key.
    pub fn load_options(&self, settings: &Settings) -> Result<LoadOptions, KeyFileError> {
        let options = load_options(settings, settings.secrets.value_hashing()?);
        Ok(LoadOptions { merge_domains: self.merge_domains || options.merge_domains, ..options })
    }
}

/// Why the rules of the settings cannot be read or used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsRulesError {
    #[error("no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error(transparent)]
    Rules(#[from] ReadRulesError),
}

/// The rules that a service with these settings would use, of files or of an xDS server.
///
/// # Errors
/// [`SettingsRulesError`] if they cannot be read or used.
pub fn settings_rules(settings: &Settings, options: LoadOptions) -> Result<ReadRules, SettingsRulesError> {
    Ok(block_on(read_rules(settings, options))??)
}
