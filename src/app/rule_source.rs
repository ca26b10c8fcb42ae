//! Reads rules from their source, watched files or an xDS server, and applies changes while the process runs. Commands
//! read once the rules that a service with the same settings would use.

use std::future::Future;
use std::io;
use std::path::PathBuf;

use base::check_forever;
use base::clock::{Clock as _, SystemClock, monotonic};
use engine::ValueHashing;
use rules::{self, CalendarOptions, CalendarYears, Change, LoadOptions, LoadedRules, Problems, Reloader};

use super::AppError;
use super::active_rules::ActiveRules;
use super::xds_rules::Sink;
use crate::decide::{NotReadyReason, Readiness};
use crate::settings::{Settings, StoreKind};
use crate::telemetry::metrics::Metrics;
use crate::xds::{Fetched, XdsClient, XdsFetchError, XdsOptions, XdsState, fetch};

/// Returns the load options for rule files in the settings.
pub fn load_options(settings: &Settings, hashing: ValueHashing) -> LoadOptions {
    LoadOptions {
        merge_domains: settings.rules.merge_domains,
        defaults: settings.defaults,
        upgrades: settings.upgrades.clone(),
        hashing,
        directory: settings.rules.directory,
        calendars: CalendarOptions {
            years: CalendarYears::around(SystemClock.now_us()),
            month_zone: settings.month_zone.clone(),
        },
        has_home: settings.store.has_home(),
    }
}

#[derive(Debug)]
pub(super) struct RuleWatcher {
    pub(super) active: ActiveRules,
    pub(super) source: RuleSource,
}

#[derive(Debug)]
pub(super) enum RuleSource {
    Files {
        reloader: Box<Reloader>,
        /// `true` if changes take effect.
        is_watched: bool,
    },
    Xds {
        options: Box<XdsOptions>,
        load_options: Box<LoadOptions>,
        state: XdsState,
    },
}

impl RuleWatcher {
    /// Loads the first rules from files. A server's rules come later: the process may be ready before.
    ///
    /// # Errors
    /// If they are invalid, and the settings do not let the process start without rules.
    pub(super) fn start(
        settings: &Settings,
        options: LoadOptions,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> Result<Self, AppError> {
        let rules = &settings.rules;
        let active = ActiveRules::without_rules(metrics, readiness, rules.require_domain);
        if let Some(xds) = &rules.xds {
            if !xds.start_without_rules {
                readiness.set(NotReadyReason::NoRules);
            }
            let (options, load_options) = (Box::new(xds.clone()), Box::new(options));
            return Ok(Self {
                active,
                source: RuleSource::Xds { options, load_options, state: XdsState::default() },
            });
        }
        let (reloader, loaded) = Reloader::start(std::slice::from_ref(&rules.path), options);
        match loaded {
            // Nothing to notify: no request has used rules yet.
            Ok(loaded) => active.replace(loaded, || {}),
            Err(problems) if rules.directory.reads_any_name() => {
                readiness.set(NotReadyReason::NoRules);
                record_failure(&active, problems, reloader.digest());
            }
            Err(problems) => {
                let path = rules.path.display();
                let text = format!("rules.path: cannot load rules from {path}:\n{problems}");
                return Err(AppError { setting: None, text });
            }
        }
        if settings.store.kind == StoreKind::Memory && active.rulebook.rules().has_slots() {
            tracing::warn!("concurrency with store.kind: memory works in one instance only");
        }
        let source = RuleSource::Files { reloader: Box::new(reloader), is_watched: rules.watch };
        Ok(Self { active, source })
    }

    /// State of the xDS client; `None` for files.
    pub(super) fn xds_state(&self) -> Option<XdsState> {
        match &self.source {
            RuleSource::Files { .. } => None,
            RuleSource::Xds { state, .. } => Some(state.clone()),
        }
    }

    /// Applies changes until `end`. Calls `on_change` after each one, once its rules have taken effect.
    pub(super) async fn watch(self, on_change: impl Fn() + Send + 'static, end: impl Future<Output = ()>) {
        let Self { active, source } = self;
        match source {
            RuleSource::Files { is_watched: false, .. } => {}
            RuleSource::Files { mut reloader, is_watched: true } => {
                let watched = check_forever(move || {
                    let change = reloader.check_files(monotonic());
                    apply(&active, change, reloader.digest(), &on_change);
                });
                tokio::select! {
                    () = end => {}
                    never = watched => match never {},
                }
            }
            RuleSource::Xds { options, load_options, state } => {
                let meter = active.metrics.families.xds.clone();
                let sink = Sink { active, load_options: *load_options, on_change };
                XdsClient::new(*options, sink, meter, state).run(end).await;
            }
        }
    }
}

/// `digest`: identifies the files that were read last.
fn apply(
    active: &ActiveRules,
    change: Change<Result<LoadedRules, Problems>>,
    digest: &str,
    on_change: &impl Fn(),
) {
    match change {
        Change::Unchanged => active.status.lock().load.has_unread_change = false,
        Change::Unsettled { is_overdue } => {
            active.status.lock().load.has_unread_change = true;
            if is_overdue {
                tracing::warn!("rule files keep changing; keeping current rules");
            }
        }
        Change::Loaded(Ok(loaded)) => active.replace(loaded, on_change),
        Change::Loaded(Err(problems)) => record_failure(active, problems, digest),
    }
}

fn record_failure(active: &ActiveRules, problems: Problems, digest: &str) {
    if active.has_rules() {
        let error = format_args!("rules.path:\n{problems}");
        tracing::error!(%error, "cannot load changed rules; keeping current rules");
    } else {
        tracing::error!(error = %problems, "cannot load rules; not ready");
    }
    active.record_failure(problems, digest);
}

/// Rules, and where they come from.
#[derive(Debug)]
pub struct ReadRules {
    pub loaded: LoadedRules,
    /// The server and its answer's version; `None`: the rules come from files.
    pub server: Option<(String, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadRulesError {
    #[error("rules.path: {}\n{problems}", path.display())]
    Files { path: PathBuf, problems: Problems },
    #[error("rules.xds.address: cannot get rules from xDS server {server}: {cause}")]
    Server {
        server: String,
        #[source]
        cause: XdsFetchError,
    },
    #[error("cannot load the rules of xDS server {server}, version {version}:\n{problems}")]
    Resources { server: String, version: String, problems: Problems },
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] io::Error),
}

impl ReadRulesError {
    /// Returns the problems; `None` if the rules were unreadable.
    pub fn problems(&self) -> Option<&Problems> {
        match self {
            Self::Files { problems, .. } | Self::Resources { problems, .. } => Some(problems),
            Self::Server { .. } | Self::Runtime(_) => None,
        }
    }
}

/// Reads the configured rules: files, or the xDS server's first answer.
///
/// # Errors
/// [`ReadRulesError`] if they are unreadable or invalid.
pub async fn read_rules(settings: &Settings, options: LoadOptions) -> Result<ReadRules, ReadRulesError> {
    let settings = &settings.rules;
    let Some(xds) = &settings.xds else {
        let path = settings.path.clone();
        return match rules::load(std::slice::from_ref(&path), options) {
            Ok(loaded) => Ok(ReadRules { loaded, server: None }),
            Err(problems) => Err(ReadRulesError::Files { path, problems }),
        };
    };
    let server = xds.address.authority();
    let Fetched { version, resources } = match fetch(xds).await {
        Ok(fetched) => fetched,
        Err(cause) => return Err(ReadRulesError::Server { server, cause }),
    };
    match rules::load_resources(resources, &options) {
        Ok(loaded) => Ok(ReadRules { loaded, server: Some((server, version)) }),
        Err(problems) => Err(ReadRulesError::Resources { server, version, problems }),
    }
}
