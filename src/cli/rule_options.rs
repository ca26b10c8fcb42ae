//! The options of every sub-command that loads rule files. Loads them, and their exceptions, as a service with the same
//! settings does.

use std::path::PathBuf;

use base::clock::{Clock as _, SystemClock};
use clap::Args;
use engine::Entry;
use rules::{CalendarOptions, CalendarYears, ExceptionScope, LoadOptions, LoadedExceptions};

use super::load_settings::load_settings;
use super::service_connection::block_on;
use crate::app::{ExceptionsError, ReadRules, ReadRulesError, load_options, read_exceptions, read_rules};
use crate::settings::{KeyFileError, Settings, SettingsError};

/// Options of `validate`, `explain`, `replay` and `simulate`.
#[derive(Clone, Debug, Default, Args)]
pub struct RuleOptions {
    /// Apply `defaults`, `upgrades`, `secrets`, `exceptions` and `rules` of this settings file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Merge files that name the same domain, as rules.merge_domains does
    #[arg(long)]
    pub merge_domains: bool,

    /// Apply this exception file, or directory of *.csv and *.yaml files, instead of exceptions.path
    #[arg(long, value_name = "PATH")]
    pub exceptions: Option<PathBuf>,
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
    /// Returns the settings of the file, if `--config` names one, and of the environment; and the load options from
    /// them, or from the command line where it overrides them.
    ///
    /// # Errors
    /// [`RuleOptionsError`] if the settings are invalid, or `secrets.key_file` has no key.
    pub fn load(&self) -> Result<(Settings, LoadOptions), RuleOptionsError> {
        let settings = load_settings(self.config.as_deref(), None)?.settings;
        let options = load_options(&settings, settings.secrets.value_hashing()?);
        let merge_domains = self.merge_domains || options.merge_domains;
        // The requests of a log can be of any year.
        let years = CalendarYears::of_logs(SystemClock.now_us());
        let calendars = CalendarOptions { years, ..options.calendars };
        Ok((settings, LoadOptions { merge_domains, calendars, ..options }))
    }

    /// Loads the exceptions of the command line, or else of the settings; `None` if neither names any. They apply to
    /// requests with `entries`, or to all requests.
    ///
    /// # Errors
    /// [`ExceptionsError`] if they are invalid.
    pub fn load_exceptions(
        &self,
        settings: &Settings,
        entries: Option<&[Entry]>,
    ) -> Result<Option<LoadedExceptions>, ExceptionsError> {
        let columns = Some(&settings.exceptions.columns);
        let scope = ExceptionScope { now_us: SystemClock.now_us(), entries, columns };
        let path = self.exceptions.as_deref().or(settings.exceptions.existing_path());
        path.map(|path| read_exceptions(path, scope)).transpose()
    }
}

/// Reads the rules that a service with these settings would use, from files or an xDS server.
///
/// # Errors
/// [`ReadRulesError`] if they are unreadable or invalid.
pub fn settings_rules(settings: &Settings, options: LoadOptions) -> Result<ReadRules, ReadRulesError> {
    block_on(read_rules(settings, options))?
}
