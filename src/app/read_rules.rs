//! The rules that a service with the same settings would use, read once, for commands.

use std::path::PathBuf;

use rules::{LoadOptions, LoadedRules, Problems, load, load_resources};

use crate::settings::Settings;
use crate::xds::{Fetched, XdsFetchError, fetch};

/// Rules, and where they come from.
#[derive(Debug)]
pub struct ReadRules {
    pub loaded: LoadedRules,
    /// The server and the version of its answer; `None`: the rules come from files.
    pub server: Option<(String, String)>,
}

/// Why the rules of the settings cannot be read or used.
#[derive(Debug, thiserror::Error)]
pub enum ReadRulesError {
    #[error("rules.path: {}\n{problems}", path.display())]
    Files { path: PathBuf, problems: Problems },
    #[error("rules.xds.address: no rules from the xDS server {server}: {cause}")]
    Server {
        server: String,
        #[source]
        cause: XdsFetchError,
    },
    #[error("the rules of the xDS server {server}, version {version}, cannot be used:\n{problems}")]
    Resources { server: String, version: String, problems: Problems },
}

impl ReadRulesError {
    /// The problems of the rules; `None` if they could not be read.
    #[must_use]
    pub fn problems(&self) -> Option<&Problems> {
        match self {
            Self::Files { problems, .. } | Self::Resources { problems, .. } => Some(problems),
            Self::Server { .. } => None,
        }
    }
}

/// Reads the rules of the settings: files, or the first answer of the xDS server.
///
/// # Errors
/// [`ReadRulesError`] if they cannot be read or used.
pub async fn read_rules(settings: &Settings, options: LoadOptions) -> Result<ReadRules, ReadRulesError> {
    let settings = &settings.rules;
    let Some(xds) = &settings.xds else {
        let path = settings.path.clone();
        return match load(std::slice::from_ref(&path), options) {
            Ok(loaded) => Ok(ReadRules { loaded, server: None }),
            Err(problems) => Err(ReadRulesError::Files { path, problems }),
        };
    };
    let server = xds.address.authority();
    let Fetched { version, resources } = match fetch(xds).await {
        Ok(fetched) => fetched,
        Err(cause) => return Err(ReadRulesError::Server { server, cause }),
    };
    match load_resources(resources, &options) {
        Ok(loaded) => Ok(ReadRules { loaded, server: Some((server, version)) }),
        Err(problems) => Err(ReadRulesError::Resources { server, version, problems }),
    }
}
