//! Settings: compiled-in defaults, then a YAML file, then environment variables `RATELIMITD__SECTION__KEY`. The only
//! reader of the environment.
//!
//! `file` and `layers` build one tree of values, `reader` takes settings out of it with the `parsers`, and each other
//! file has the keys of one section. Entry point: [`Settings::load`].

mod error;
mod file;
mod layers;
mod ledger_section;
mod notify_section;
mod parsers;
mod reader;
mod rules_section;
mod secrets;
mod server_section;
mod store_section;
mod telemetry;
mod upgrades;

use std::num::NonZeroU32;

use engine::{Algorithm, Charging, Defaults, Enforcement, Lease, Verdict};
use rules::Upgrade;

use crate::decide::{HeaderNames, ResponseOptions};
use crate::ledger::LedgerOptions;
use crate::notify::WebhookOptions;
use crate::telemetry::traces::TracesOptions;

pub use error::{Fault, SettingProblem, SettingProblems, SettingsError};
pub use layers::{Setting, Written};
pub use reader::{SettingInForce, SettingsReport};
pub use rules_section::{Exceptions, Rules};
pub use secrets::{HashKeySource, KeyFileError, Secrets};
pub use server_section::{AdminServer, Check, GrpcServer, Server};
pub(crate) use store_section::TopologyName;
pub use store_section::{Store, StoreKind};
pub use telemetry::{Log, Metrics};

pub(crate) use error::quoted;
pub(crate) use layers::{is_service_link, process_variables, variable_origin};

use layers::Merged;
use parsers::{flag, header_name, named, nonzero_u32, one_of, share, time_zone};
use reader::Reader;

/// All settings, validated. They do not change while the process runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub server: Server,
    pub rules: Rules,
    pub exceptions: Exceptions,
    pub secrets: Secrets,
    pub store: Store,
    /// `failure.local_share`: divisor of a limit with the policy `local` during an outage; `None`: `auto`, the number
    /// of live instances.
    pub local_share: Option<NonZeroU32>,
    /// `defaults.*`: for limits that do not set them; and `quota_mode`.
    pub defaults: Defaults,
    /// `defaults.month_calendar`: time zone of calendar months that do not name one; `None`: 30 days from the epoch.
    pub month_zone: Option<Box<str>>,
    /// `upgrades`: fields of limits whose rules cannot express them.
    pub upgrades: Vec<Upgrade>,
    /// `near_limit_ratio` in millionths, 0 to 1,000,000: share of a limit above which a hit counts as near it.
    pub near_limit_ppm: u32,
    /// `shadow_mode`
    pub enforcement: Enforcement,
    pub metrics: Metrics,
    /// `traces.*`; `None` if the endpoint is `off`.
    pub traces: Option<TracesOptions>,
    /// `ledger.*`; `None` without a path.
    pub ledger: Option<LedgerOptions>,
    /// `notify.*`; `None` without a URL.
    pub webhook: Option<WebhookOptions>,
    /// `response.*`: optional parts of an answer.
    pub response: ResponseOptions,
    pub log: Log,
}

impl Settings {
    /// Merges the layers, and reads every setting.
    ///
    /// # Errors
    /// [`SettingsError::Invalid`]: every unknown or malformed key.
    pub fn load(written: Written) -> Result<(Self, SettingsReport), SettingsError> {
        let Merged { config, problems, warnings } = written.merge(&Self::catalogue())?;
        let mut reader = Reader::new(config, problems);
        let settings = Self::from_reader(&mut reader);
        Ok((settings, reader.finish(warnings)?))
    }

    /// Every setting, in documentation order.
    pub fn catalogue() -> Vec<Setting> {
        let mut reader = Reader::default();
        Self::from_reader(&mut reader);
        reader.into_settings()
    }

    fn from_reader(reader: &mut Reader) -> Self {
        // `envoy_ratelimit` has applied it already; it is only checked and listed.
        let is_checked = one_of(["auto", "on", "off"].map(|name| (name, ())));
        reader.take("envoy_ratelimit_environment", "auto", is_checked);
        let settings = Self {
            server: Server::from_reader(reader),
            rules: Rules::from_reader(reader),
            exceptions: Exceptions::from_reader(reader),
            secrets: Secrets::from_reader(reader),
            store: Store::from_reader(reader),
            local_share: reader.take("failure.local_share", "1", nonzero_u32(1_000).or("auto", "auto")),
            defaults: defaults_from_reader(reader),
            month_zone: reader.take("defaults.month_calendar", "", time_zone()),
            upgrades: upgrades::upgrades_from_reader(reader),
            near_limit_ppm: reader.take("near_limit_ratio", "0.8", share()),
            metrics: Metrics::from_reader(reader),
            traces: telemetry::traces_from_reader(reader),
            ledger: ledger_section::ledger_from_reader(reader),
            webhook: notify_section::webhook_from_reader(reader),
            enforcement: enforcement_from_reader(reader),
            response: response_from_reader(reader),
            log: Log::from_reader(reader),
        };
        let lists_instances = settings.store.kind == StoreKind::Memory || settings.exceptions.redis;
        if settings.defaults.lease == Lease::Auto && settings.store.kind == StoreKind::Memory {
            reader.warn(
                "defaults.lease",
                "`auto` needs store.kind: redis; without Redis there is nothing to take ahead",
            );
        }
        if settings.local_share.is_none() && !lists_instances {
            let reason = "`auto` needs exceptions.redis: true, with which Redis lists the instances";
            reader.refuse("failure.local_share", Fault::Unsupported(reason));
        }
        settings
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from_reader(&mut Reader::default())
    }
}

fn defaults_from_reader(reader: &mut Reader) -> Defaults {
    let chargings = [
        ("auto", None),
        (Charging::Postpaid.into_str(), Some(Charging::Postpaid)),
        (Charging::Prepaid.into_str(), Some(Charging::Prepaid)),
    ];
    // Its requests return receipts, so only a rule selects it.
    let is_default = |algorithm: &&Algorithm| **algorithm != Algorithm::Concurrency;
    let default_algorithms =
        Algorithm::ALL.iter().filter(is_default).map(|algorithm| (algorithm.into_str(), *algorithm));
    let used_up_checks = [("over_limit", Verdict::Over), ("ok", Verdict::Fits)];
    Defaults {
        algorithm: reader.take("defaults.algorithm", "fixed_window", one_of(default_algorithms)),
        charging: reader.take("defaults.charging", "auto", one_of(chargings)),
        on_store_failure: reader.take("defaults.on_store_failure", "error", named()),
        lease: reader.take("defaults.lease", "off", named()),
        used_up_check: reader.take("defaults.used_up_check", "over_limit", one_of(used_up_checks)),
        quota_mode: reader.take("quota_mode", "false", flag()),
    }
}

fn response_from_reader(reader: &mut Reader) -> ResponseOptions {
    ResponseOptions {
        headers: reader.take("response.headers", "none", named()),
        header_names: HeaderNames {
            limit: reader.take("response.limit_header", "RateLimit-Limit", header_name()),
            remaining: reader.take("response.remaining_header", "RateLimit-Remaining", header_name()),
            reset: reader.take("response.reset_header", "RateLimit-Reset", header_name()),
        },
        announce_header: reader.take(
            "response.announce_header",
            "x-ratelimit-announce",
            header_name().or_nothing(),
        ),
        retry_after: reader.take("response.retry_after", "false", flag()),
        problem: reader.take("response.problem", "false", flag()),
        dynamic_metadata: reader.take("response.dynamic_metadata", "false", flag()),
    }
}

fn enforcement_from_reader(reader: &mut Reader) -> Enforcement {
    if reader.take("shadow_mode", "false", flag()) { Enforcement::Shadow } else { Enforcement::Enforce }
}

#[cfg(test)]
mod tests;
