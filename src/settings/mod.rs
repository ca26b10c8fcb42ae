//! The settings: compiled-in defaults, then a YAML file, then environment variables `RATELIMITD__SECTION__KEY`. The
//! variables of `envoyproxy/ratelimit` are read as well, where they are meant.
//!
//! Holds every key with its default and range, and parses text into the option types of the modules that use them. The
//! only reader of the environment. Knows the path of the rule files, but not their content.

pub(crate) mod error;
mod file;
pub(crate) mod layers;
mod log;
mod metrics;
mod parsers;
pub(crate) mod reader;
mod redis;
mod report;
mod response;
mod rows;
mod rules;
mod secrets;
mod server;
mod server_tls;
pub(crate) mod service_link;
mod statsd;
mod store;
mod traces;
mod unread;
mod upgrades;
mod xds;

use std::num::NonZeroU32;
use std::path::Path;

use ::rules::Upgrade;
use engine::{Algorithm, Charging, Defaults, Enforcement, FailurePolicy, Verdict};

use crate::decide::{HeaderStyle, ResponseOptions};
use crate::telemetry::traces::TracesOptions;

pub use crate::reference::variables::{EnvironmentUse, ReferenceVariable};
pub use error::{Fault, Origin, SettingProblem, SettingProblems, SettingsError};
pub use log::Log;
pub use metrics::Metrics;
pub use reader::Setting;
pub use report::{SettingInForce, SettingsReport};
pub use rules::{RuleDirectory, Rules};
pub use secrets::{HashKeySource, KeyFileError, Secrets};
pub use server::{AdminServer, GrpcServer, Server};
pub use store::{Store, StoreKind};

use crate::reference::variables;
use reader::Reader;

/// All settings, validated. They do not change while the process runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `server.*`
    pub server: Server,
    /// `rules.*`
    pub rules: Rules,
    /// `secrets.*`
    pub secrets: Secrets,
    /// `store.*`
    pub store: Store,
    /// `failure.local_share`: during an outage, a limit with the policy `local` is divided by this number.
    pub local_share: NonZeroU32,
    /// `defaults.*`: for limits that do not set them; and `quota_mode`.
    pub defaults: Defaults,
    /// `upgrades`: fields of limits whose rules cannot say them.
    pub upgrades: Vec<Upgrade>,
    /// `near_limit_ratio` in millionths, 0 to 1,000,000: the share of a limit above which a hit counts as near it.
    pub near_limit_ppm: u32,
    /// `shadow_mode`
    pub enforcement: Enforcement,
    /// `metrics.*`
    pub metrics: Metrics,
    /// `traces.*`; `None` if the endpoint is `off`.
    pub traces: Option<TracesOptions>,
    /// `response.*`: optional parts of an answer.
    pub response: ResponseOptions,
    /// `log.*`
    pub log: Log,
}

impl Settings {
    /// Reads the file, if one is given, and the process environment.
    ///
    /// # Errors
    /// [`SettingsError`]: the file that cannot be read, or every key that is unknown or malformed.
    pub fn load(file: Option<&Path>) -> Result<Self, SettingsError> {
        Ok(Self::load_with_report(file, None)?.0)
    }

    /// Like [`load`](Self::load), with the origin of each setting. `called_as`: the name of the program, which decides
    /// whether the variables of `envoyproxy/ratelimit` are read.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with_report(
        file: Option<&Path>,
        called_as: Option<&str>,
    ) -> Result<(Self, SettingsReport), SettingsError> {
        let environment = layers::process_environment(variables::is_known)?;
        Self::read_layers(file, environment, called_as)
    }

    /// Like [`load`](Self::load), with the given environment variables. Variables that do not start with
    /// `RATELIMITD__` are ignored, unless only their underscores keep them from being a setting, or they are those of
    /// `envoyproxy/ratelimit`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_layers(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        Ok(Self::read_layers(file, environment, None)?.0)
    }

    /// Like [`load_with_report`](Self::load_with_report), with the given environment variables.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read_layers(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        called_as: Option<&str>,
    ) -> Result<(Self, SettingsReport), SettingsError> {
        let mut written = file.map(file::read_file).transpose()?.unwrap_or_default();
        let variables: Vec<(String, String)> = environment.into_iter().collect();
        written.layer.extend(layers::environment(variables.iter().cloned())?);
        let environment = EnvironmentUse::decide(called_as, &written.layer, &variables);
        let (mut warnings, mut read) = (Vec::new(), Vec::new());
        if environment.is_read() {
            let texts = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let translation = variables::translate(texts);
            written.problems.extend(translation.problems);
            warnings.extend(translation.warnings);
            read = translation.variables;
            let catalogue = Self::catalogue();
            let layer = &mut written.layer;
            warnings.extend(variables::add_translated(layer, translation.layer, &catalogue));
        }
        warnings.extend(unread::unread_variables(&variables).iter().map(ToString::to_string));
        warnings.extend(unread::take_without_effect(&mut written.layer));
        let mut reader = Reader::new(written.layer, written.problems);
        let settings = Self::from_reader(&mut reader);
        variables.iter().for_each(|(name, _)| reader.refuse_misspelled(name));
        let settings_in_force = reader.take_in_force();
        let report = SettingsReport { environment, warnings, variables: read, settings: settings_in_force };
        reader.finish()?;
        Ok((settings, report))
    }

    /// Every variable of `envoyproxy/ratelimit`, in the order of the documentation.
    #[must_use]
    pub fn reference_variables() -> Vec<ReferenceVariable> {
        variables::variables()
    }

    /// Every setting, in the order of the documentation.
    #[must_use]
    pub fn catalogue() -> Vec<Setting> {
        let mut reader = Reader::default();
        Self::from_reader(&mut reader);
        reader.into_settings()
    }

    fn from_reader(reader: &mut Reader) -> Self {
        // `read_layers` has decided by it already; here it is checked, and listed.
        reader.take(variables::ASKED, "auto", parsers::one_of(variables::asked_values()));
        let mut settings = Self {
            server: Server::from_reader(reader),
            rules: Rules::from_reader(reader),
            secrets: Secrets::from_reader(reader),
            store: Store::from_reader(reader),
            local_share: reader.take("failure.local_share", "1", parsers::nonzero_u32(1_000)),
            defaults: defaults_from_reader(reader),
            upgrades: upgrades::upgrades_from_reader(reader),
            near_limit_ppm: reader.take("near_limit_ratio", "0.8", parsers::share()),
            metrics: Metrics::from_reader(reader),
            traces: traces::traces_from_reader(reader),
            enforcement: enforcement_from_reader(reader),
            response: response::response_from_reader(reader),
            log: Log::from_reader(reader),
        };
        if let Some(deny_cache) = &mut settings.store.deny_cache {
            deny_cache.require_all_limits |= reports_every_limit(&settings.response);
        }
        settings
    }
}

impl Default for Settings {
    /// The compiled-in defaults.
    fn default() -> Self {
        Self::from_reader(&mut Reader::default())
    }
}

/// Whether an answer describes every limit of the request, and not only the one that denies it.
fn reports_every_limit(response: &ResponseOptions) -> bool {
    response.retry_after || response.dynamic_metadata || response.headers == HeaderStyle::Ietf
}

fn defaults_from_reader(reader: &mut Reader) -> Defaults {
    let algorithms = Algorithm::ALL.iter().map(|&algorithm| (algorithm.name(), algorithm));
    let chargings = [
        ("auto", None),
        (Charging::Postpaid.name(), Some(Charging::Postpaid)),
        (Charging::Prepaid.name(), Some(Charging::Prepaid)),
    ];
    let policies = FailurePolicy::ALL.iter().map(|&policy| (policy.name(), policy));
    let used_up_checks = [("over_limit", Verdict::Over), ("ok", Verdict::Fits)];
    Defaults {
        algorithm: reader.take("defaults.algorithm", "fixed_window", parsers::one_of(algorithms)),
        charging: reader.take("defaults.charging", "auto", parsers::one_of(chargings)),
        on_store_failure: reader.take("defaults.on_store_failure", "error", parsers::one_of(policies)),
        used_up_check: reader.take("defaults.used_up_check", "over_limit", parsers::one_of(used_up_checks)),
        quota_mode: reader.take("quota_mode", "false", parsers::flag()),
    }
}

fn enforcement_from_reader(reader: &mut Reader) -> Enforcement {
    if reader.take("shadow_mode", "false", parsers::flag()) {
        Enforcement::Shadow
    } else {
        Enforcement::Enforce
    }
}

#[cfg(test)]
mod tests;
