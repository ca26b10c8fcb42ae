//! Loads the `/check` map from its file, and applies changes while the process runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base::clock::monotonic;
use base::{Change, Watched, check_forever};
use map::{Map, MapError, RequestMap};

use crate::decide::limiter::Rulebook;
use crate::http::CheckOptions;
use crate::settings::Check;

/// Reads the `/check` map.
///
/// # Errors
/// [`MapError`] for the first mistake, such as a field that no request has.
pub fn load_check_map(path: &Path) -> Result<RequestMap, MapError> {
    Map::load(path)?.for_requests()
}

#[derive(Debug)]
pub(super) struct CheckMapWatcher {
    settings: Check,
    map: Arc<ArcSwap<RequestMap>>,
    file: Watched<PathBuf>,
    rulebook: Arc<Rulebook>,
}

impl CheckMapWatcher {
    /// Loads the map for the first time.
    ///
    /// # Errors
    /// If it is invalid.
    pub(super) fn start(settings: &Check, rulebook: &Arc<Rulebook>) -> Result<Self, MapError> {
        let (file, map) = Watched::start(settings.map.clone(), |path| load_check_map(path));
        let map = map?;
        warn_of(&map, rulebook);
        let (map, rulebook) = (Arc::new(ArcSwap::from_pointee(map)), Arc::clone(rulebook));
        Ok(Self { settings: settings.clone(), map, file, rulebook })
    }

    pub(super) fn options(&self) -> CheckOptions {
        CheckOptions { map: Arc::clone(&self.map), denied_status: self.settings.denied_status }
    }

    /// Applies changes. Never returns.
    pub(super) async fn watch(self) {
        let Self { settings, map, mut file, rulebook } = self;
        check_forever(move || match file.check(monotonic(), |path| load_check_map(path)) {
            Change::Unchanged | Change::Unsettled { .. } => {}
            Change::Loaded(Ok(changed)) => {
                warn_of(&changed, &rulebook);
                map.store(Arc::new(changed));
                tracing::info!(file = %settings.map.display(), "/check map loaded");
            }
            Change::Loaded(Err(error)) => {
                let error = format_args!("server.http.check.map: {error}");
                tracing::error!(%error, "cannot load changed /check map; keeping current map");
            }
        })
        .await;
    }
}

/// Warns of whatever lets requests pass unlimited. An xDS server's rules may come later.
fn warn_of(map: &RequestMap, rulebook: &Rulebook) {
    for warning in map.warnings() {
        tracing::warn!("/check map: {warning}");
    }
    let domain = map.domain();
    if rulebook.has_rules() && rulebook.rules().domain(domain).is_none() {
        tracing::warn!(domain, "no rules for the domain of the /check map; it admits every request");
    }
}
