//! What an operator can set: compiled-in defaults <- a YAML file <- environment variables `RATELIMITD__SECTION__KEY`.
//!
//! Knows every key, its default and its range, and turns text into validated types, one struct per section. The only
//! reader of the environment. Knows nothing of what the settings are used for, and of rule files only where they lie.

mod error;
mod failure;
mod file;
mod kinds;
mod layers;
mod log;
mod reader;
mod redis_server;
mod redis_url;
mod response;
mod rules;
mod server;
mod store;

use std::path::Path;

use crate::engine::{Algorithm, Charging, Defaults, Enforcement, FailurePolicy};

pub use error::{Fault, Origin, Problem, Problems, SettingsError};
pub use failure::Failure;
pub use log::Log;
pub use reader::Setting;
pub use redis_server::{RedisCredentials, RedisSentinel, RedisServer, RedisTls, RedisTopology, Secret};
pub use redis_url::RedisUrl;
pub use response::{Response, ResponseHeaders};
pub use rules::Rules;
pub use server::{Admin, Grpc, Http, Server};
pub use store::{Breaker, DenyCache, MemoryStore, RedisStore, Store, StoreKind};

use reader::Reader;

/// Everything an operator can set, validated. Does not change while the process runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `server.*`: where it listens and what it accepts.
    pub server: Server,
    /// `rules.*`: where the rule files are.
    pub rules: Rules,
    /// `store.*`: where the counters live.
    pub store: Store,
    /// `failure.*`: what is answered while the store cannot.
    pub failure: Failure,
    /// `defaults.*`: what a limit is that does not say.
    pub defaults: Defaults,
    /// `near_limit_ratio` in millionths, 0 to 1,000,000: the share of a limit above which a hit counts as near it.
    pub near_limit_ppm: u32,
    /// `shadow_mode`: whether answers bind.
    pub enforcement: Enforcement,
    /// `response.*`: what answers carry beyond the statuses.
    pub response: Response,
    /// `log.*`: what is logged and how.
    pub log: Log,
}

impl Settings {
    /// Reads the file, where there is one, and the process environment.
    ///
    /// # Errors
    /// [`SettingsError`] naming the file that cannot be read, or every key that is unknown or malformed.
    pub fn load(file: Option<&Path>) -> Result<Self, SettingsError> {
        Self::from_layers(file, layers::process_environment()?)
    }

    /// As [`load`](Self::load), with the environment given: names and values, of which those that do not begin with
    /// `RATELIMITD__` are passed over.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_layers(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let mut written = file.map(file::read).transpose()?.unwrap_or_default();
        written.layer.extend(layers::environment(environment)?);
        let mut reader = Reader::new(written.layer, written.problems);
        let settings = Self::read(&mut reader);
        reader.finish()?;
        Ok(settings)
    }

    /// Every setting there is, in the order of the documentation.
    #[must_use]
    pub fn catalogue() -> Vec<Setting> {
        let mut reader = Reader::default();
        Self::read(&mut reader);
        reader.into_settings()
    }

    fn read(reader: &mut Reader) -> Self {
        Self {
            server: Server::read(reader),
            rules: Rules::read(reader),
            store: Store::read(reader),
            failure: Failure::read(reader),
            defaults: read_defaults(reader),
            near_limit_ppm: reader.read("near_limit_ratio", "0.8", kinds::share()),
            enforcement: read_enforcement(reader),
            response: Response::read(reader),
            log: Log::read(reader),
        }
    }
}

impl Default for Settings {
    /// The compiled-in defaults.
    fn default() -> Self {
        Self::read(&mut Reader::default())
    }
}

fn read_defaults(reader: &mut Reader) -> Defaults {
    let algorithms = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
    let chargings = [
        ("auto", None),
        (Charging::Postpaid.name(), Some(Charging::Postpaid)),
        (Charging::Prepaid.name(), Some(Charging::Prepaid)),
    ];
    let policies = FailurePolicy::ALL.map(|policy| (policy.name(), policy));
    Defaults {
        algorithm: reader.read("defaults.algorithm", "fixed_window", kinds::one_of(algorithms)),
        charging: reader.read("defaults.charging", "auto", kinds::one_of(chargings)),
        on_store_failure: reader.read("defaults.on_store_failure", "error", kinds::one_of(policies)),
    }
}

fn read_enforcement(reader: &mut Reader) -> Enforcement {
    if reader.read("shadow_mode", "false", kinds::flag()) {
        Enforcement::Shadow
    } else {
        Enforcement::Enforce
    }
}

#[cfg(test)]
mod tests;
