//! The endpoints of the admin port.

use std::sync::Arc;

use base::clock::{Clock as _, SystemClock};
use parking_lot::Mutex;
use rules::{describe, rlconfig};
use serde_json::{Value, json};

use super::active_rules::ActiveRules;
use super::exceptions::ExceptionWatcher;
use super::rules::RuleWatcher;
use super::status::{exceptions_page, rules_page, store_page};
use super::stores::Stores;
use super::tls::TlsStatus;
use super::tls_page::tls_page;
use crate::http::{Endpoint, Explain};
use crate::xds::XdsState;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

pub(super) fn admin_endpoints(
    rules: &RuleWatcher,
    exceptions: &ExceptionWatcher,
    stores: &Arc<Stores>,
    tls: Vec<Arc<Mutex<TlsStatus>>>,
) -> Vec<Endpoint> {
    let rulebook = Arc::clone(&rules.active.rulebook);
    let in_force = Endpoint {
        path: "/rlconfig",
        summary: "the limits in force, one line each",
        content_type: TEXT,
        render: Arc::new(move || rlconfig(&rulebook.rules())),
    };
    let status = Arc::clone(&rules.active.status);
    let xds = rules.xds_state();
    let history = Endpoint {
        path: "/rules",
        summary: "when the rules were loaded and from where, and the problems of newer ones",
        content_type: JSON,
        render: Arc::new(move || {
            let xds = xds.as_ref().map(XdsState::status);
            pretty(&rules_page(&status.lock(), xds.as_ref()))
        }),
    };
    let status = exceptions.has_files().then(|| Arc::clone(&exceptions.active.status));
    let exceptions = Endpoint {
        path: "/exceptions",
        summary: "the rows of exceptions by file and kind, when they were loaded, and the problems of newer ones",
        content_type: JSON,
        render: Arc::new(move || {
            pretty(&exceptions_page(status.as_ref().map(|status| status.lock()).as_deref()))
        }),
    };
    let stores = Arc::clone(stores);
    let store = Endpoint {
        path: "/store",
        summary: "the state of Redis and of the breakers",
        content_type: JSON,
        render: Arc::new(move || pretty(&store_page(&stores.view()))),
    };
    let tls = Endpoint {
        path: "/tls",
        summary: "the certificates in force, and the problems of newer files",
        content_type: JSON,
        render: Arc::new(move || {
            let statuses: Vec<TlsStatus> = tls.iter().map(|status| status.lock().clone()).collect();
            pretty(&tls_page(&statuses))
        }),
    };
    let build = Endpoint {
        path: "/build",
        summary: "name and version",
        content_type: JSON,
        render: Arc::new(|| {
            pretty(&json!({"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")}))
        }),
    };
    vec![in_force, history, exceptions, store, tls, build]
}

/// Explains requests by the rules in force.
pub(super) fn explain(rules: ActiveRules) -> Explain {
    Arc::new(move |request| {
        let applied = Arc::clone(&rules.status.lock().applied);
        describe(&rules.rulebook.rules(), &applied, request, SystemClock.now_us())
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::exceptions::ConfirmedAt;
    use crate::app::rules::load_options;
    use crate::app::stores::LocalCounters;
    use crate::decide::Readiness;
    use crate::settings::Settings;
    use crate::telemetry::metrics::Metrics;
    use engine::ValueHashing;

    #[test]
    fn the_index_lists_every_page_of_the_admin_port() {
        let settings = Settings::default();
        let metrics = Metrics::new(settings.near_limit_ppm).expect("different names");
        let readiness = Readiness::not_ready(&[]);
        let rules =
            RuleWatcher::start(&settings, load_options(&settings, ValueHashing::NONE), &metrics, &readiness);
        let rules = rules.expect("the shipped rules");
        let exceptions =
            ExceptionWatcher::start(None, &rules.active.rulebook, &metrics, ConfirmedAt::default());
        let exceptions = exceptions.expect("no exceptions");
        let stores = Arc::new(Stores::new(&settings, LocalCounters::new(&settings.store), &metrics));
        let endpoints = admin_endpoints(&rules, &exceptions, &stores, Vec::new());
        let listed: Vec<_> = endpoints.iter().map(|endpoint| (endpoint.path, endpoint.summary)).collect();
        let expected = [
            ("/rlconfig", "the limits in force, one line each"),
            ("/rules", "when the rules were loaded and from where, and the problems of newer ones"),
            (
                "/exceptions",
                "the rows of exceptions by file and kind, when they were loaded, and the problems of newer ones",
            ),
            ("/store", "the state of Redis and of the breakers"),
            ("/tls", "the certificates in force, and the problems of newer files"),
            ("/build", "name and version"),
        ];
        assert_eq!(listed, expected);
    }
}
