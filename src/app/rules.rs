//! Where the rules come from: files that are watched, or an xDS server. Applies changes while the process runs.

use std::future::Future;
use std::path::PathBuf;

use engine::ValueHashing;
use rules::{self, CHECK_EVERY, Change, DirectoryOptions, LoadOptions, Problems, Reloader};

use super::active_rules::ActiveRules;
use super::xds_rules::{XdsRules, XdsSource};
use crate::decide::{NotReadyReason, Readiness};
use crate::settings::{RuleDirectory, Settings};
use crate::telemetry::metrics::Metrics;

/// Why the process cannot start with these rules.
#[derive(Debug, thiserror::Error)]
pub enum RuleStartError {
    #[error("rules.path: the rules at {} cannot be used:\n{problems}", path.display())]
    Unusable { path: PathBuf, problems: Problems },
}

/// How the settings say that rule files are loaded.
#[must_use]
pub fn load_options(settings: &Settings, hashing: ValueHashing) -> LoadOptions {
    let directory = settings.rules.directory;
    let is_beside = matches!(directory, RuleDirectory::AnyFilesAndBeside | RuleDirectory::Optional);
    LoadOptions {
        merge_domains: settings.rules.merge_domains,
        defaults: settings.defaults,
        upgrades: settings.upgrades.clone(),
        hashing,
        directory: DirectoryOptions {
            any_name: directory != RuleDirectory::YamlFiles,
            beside: is_beside,
            dot_files: settings.rules.dot_files,
            may_be_missing: directory == RuleDirectory::Optional,
        },
    }
}

/// The rules in force and their source.
#[derive(Debug)]
pub(super) struct RuleWatcher {
    pub(super) active: ActiveRules,
    pub(super) source: RuleSource,
}

#[derive(Debug)]
pub(super) enum RuleSource {
    Files {
        reloader: Box<Reloader>,
        /// Whether changes take effect.
        is_watched: bool,
    },
    Xds(Box<XdsSource>),
}

impl RuleWatcher {
    /// Loads the first rules from files. Rules of a server come later: the process may be ready before.
    ///
    /// # Errors
    /// When they cannot be used, and the settings do not let the process start without rules.
    pub(super) fn start(
        settings: &Settings,
        options: LoadOptions,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> Result<Self, RuleStartError> {
        let settings = &settings.rules;
        let active = ActiveRules::without_rules(metrics, readiness, settings.require_domain);
        if let Some(xds) = &settings.xds {
            if !xds.start_without_rules {
                readiness.set(NotReadyReason::NoRules);
            }
            let source = RuleSource::Xds(Box::new(XdsSource::new(xds.clone(), options, metrics)));
            return Ok(Self { active, source });
        }
        let (reloader, loaded) = Reloader::start(std::slice::from_ref(&settings.path), options);
        match loaded {
            // No request has met the rules before.
            Ok(loaded) => drop(active.replace(loaded)),
            Err(problems) if settings.directory != RuleDirectory::YamlFiles => {
                readiness.set(NotReadyReason::NoRules);
                record_failure(&active, problems);
            }
            Err(problems) => {
                return Err(RuleStartError::Unusable { path: settings.path.clone(), problems });
            }
        }
        let source = RuleSource::Files { reloader: Box::new(reloader), is_watched: settings.watch };
        Ok(Self { active, source })
    }

    /// Applies changes until `end`. Calls `on_change` after each change, once its rules are in force.
    pub(super) async fn watch(self, on_change: impl Fn() + Send + 'static, end: impl Future<Output = ()>) {
        let Self { active, source } = self;
        match source {
            RuleSource::Files { is_watched: false, .. } => {}
            RuleSource::Files { reloader, is_watched: true } => {
                let on_check = move |change| apply(&active, change, &on_change);
                rules::watch(*reloader, CHECK_EVERY, on_check, end).await;
            }
            RuleSource::Xds(source) => source.run(XdsRules { active, on_change }, end).await,
        }
    }
}

fn apply(active: &ActiveRules, change: Change, on_change: &impl Fn()) {
    match change {
        Change::Unchanged => active.status.lock().has_unread_change = false,
        Change::Unsettled { is_overdue } => {
            active.status.lock().has_unread_change = true;
            if is_overdue {
                tracing::warn!("the rule files keep changing, so the rules before the change stay in force");
            }
        }
        Change::Loaded(result) => match *result {
            Ok(loaded) => {
                let old = active.replace(loaded);
                on_change();
                old.free_when_unused();
            }
            Err(problems) => record_failure(active, problems),
        },
    }
}

fn record_failure(active: &ActiveRules, problems: Problems) {
    if active.has_rules() {
        tracing::error!("the changed rules cannot be used, the old ones stay in force:\n{problems}");
    } else {
        tracing::error!("the rules cannot be used, so the process is not ready until they can:\n{problems}");
    }
    active.record_failure(problems);
}
