//! The options of every sub-command that loads rule files. It loads them as a service with the same settings does.

use std::path::PathBuf;

use clap::Args;

use crate::rules::LoadOptions;
use crate::settings::{Settings, SettingsError};

/// Options of `validate`, `explain` and `replay`.
#[derive(Clone, Debug, Default, Args)]
pub struct RuleOptions {
    /// Settings file whose `defaults` and `rules.merge_domains` apply
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Let several files name the same domain, as rules.merge_domains does
    #[arg(long)]
    pub merge_domains: bool,
}

impl RuleOptions {
    /// Reads the settings from the file, if `--config` names one, and from the environment.
    ///
    /// # Errors
    /// [`SettingsError`] if the settings are invalid.
    pub fn load(&self) -> Result<LoadOptions, SettingsError> {
        Ok(self.load_options(&self.settings()?))
    }

    /// Reads the settings.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        Settings::load(self.config.as_deref())
    }

    /// The options of `settings`, or those of the command line where it has them.
    #[must_use]
    pub fn load_options(&self, settings: &Settings) -> LoadOptions {
        let merge_domains = self.merge_domains || settings.rules.merge_domains;
        LoadOptions { merge_domains, defaults: settings.defaults }
    }
}
