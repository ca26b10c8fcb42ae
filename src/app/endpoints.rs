//! Lists the admin port's endpoints.

use std::future::ready;
use std::sync::Arc;

use base::clock::{Clock as _, SystemClock};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use rules::{describe, rlconfig};
use serde_json::{Value, json};

use super::active_rules::ActiveRules;
use super::certificates::TlsStatus;
use super::exceptions::ExceptionWatcher;
use super::fleet::Fleet;
use super::rule_source::RuleWatcher;
use super::status::{exceptions_page, rules_page, store_page, tls_page};
use super::stores::Stores;
use crate::http::{Endpoint, Explain};
use crate::live::LiveExceptions;

pub(super) fn admin_endpoints(
    rules: &RuleWatcher,
    exceptions: &ExceptionWatcher,
    (live, fleet): (&LiveExceptions, &Fleet),
    stores: &Arc<Stores>,
    tls: Vec<Arc<Mutex<TlsStatus>>>,
) -> Vec<Endpoint> {
    let rulebook = Arc::clone(&rules.active.rulebook);
    let in_force = Endpoint {
        path: "/rlconfig",
        summary: "the active limits, one line each",
        content_type: "text/plain; charset=utf-8",
        render: Arc::new(move || ready(rlconfig(&rulebook.rules())).boxed()),
    };
    let status = Arc::clone(&rules.active.status);
    let xds = rules.xds_state();
    let history = json_page(
        "/rules",
        "when the rules were loaded and from where, and the problems of newer ones",
        move || rules_page(&status.lock(), xds.as_ref().map(|status| status.lock()).as_deref()),
    );
    let status = exceptions.has_files().then(|| Arc::clone(&exceptions.active.status));
    let view = live.clone();
    let exceptions = json_page(
        "/exceptions",
        "the rows of exceptions by file and kind, when they were loaded, and the problems of newer ones",
        move || {
            let mut page = exceptions_page(status.as_ref().map(|status| status.lock()).as_deref());
            page["live"] = view.view().json();
            page
        },
    );
    let (live, fleet) = (live.clone(), fleet.clone());
    let fleet = Endpoint {
        path: "/fleet",
        summary: "this instance and, with Redis, the others: which rules and live exceptions each one has",
        content_type: "application/json",
        render: Arc::new(move || {
            let (live, fleet) = (live.clone(), fleet.clone());
            async move { format!("{:#}\n", fleet.page(live.view().version).await) }.boxed()
        }),
    };
    let stores = Arc::clone(stores);
    let store =
        json_page("/store", "the state of Redis and of the breakers", move || store_page(&stores.view()));
    let tls =
        json_page("/tls", "the active certificates, and the problems of newer files", move || tls_page(&tls));
    let build = json_page(
        "/build",
        "name and version",
        || json!({"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")}),
    );
    vec![in_force, history, exceptions, fleet, store, tls, build]
}

fn json_page(
    path: &'static str,
    summary: &'static str,
    page: impl Fn() -> Value + Send + Sync + 'static,
) -> Endpoint {
    let render = Arc::new(move || ready(format!("{:#}\n", page())).boxed());
    Endpoint { path, summary, content_type: "application/json", render }
}

/// Explains requests by the current rules.
pub(super) fn explain(rules: ActiveRules) -> Explain {
    Arc::new(move |request| {
        let applied = Arc::clone(&rules.status.lock().applied);
        describe(&rules.rulebook.rules(), &applied, request, SystemClock.now_us())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::exceptions::ConfirmedAt;
    use crate::app::rule_source::load_options;
    use crate::app::stores::LocalCounters;
    use crate::decide::Readiness;
    use crate::live::{Keeper, LiveOptions};
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
        let exceptions = ExceptionWatcher::start(
            &settings.exceptions,
            &rules.active.rulebook,
            &metrics,
            ConfirmedAt::default(),
        );
        let exceptions = exceptions.expect("no exceptions");
        let stores = Arc::new(Stores::new(&settings, LocalCounters::new(&settings.store), &metrics));
        let fleet = Fleet::new(rules.active.clone(), readiness, None, (Arc::default(), None));
        let live = LiveExceptions::new(LiveOptions {
            keeper: Keeper::Process,
            rulebook: Arc::clone(&rules.active.rulebook),
            metrics: metrics.clone(),
            clock: Arc::new(SystemClock),
            on_change: Box::new(|| {}),
            mask: Arc::new(|_, _, _| String::new()),
            confirmed_at: Arc::default(),
            instance: fleet.name.clone(),
            status: Arc::new(|_| String::new()),
        });
        let endpoints = admin_endpoints(&rules, &exceptions, (&live, &fleet), &stores, Vec::new());
        let listed: Vec<_> = endpoints.iter().map(|endpoint| (endpoint.path, endpoint.summary)).collect();
        let expected = [
            ("/rlconfig", "the active limits, one line each"),
            ("/rules", "when the rules were loaded and from where, and the problems of newer ones"),
            (
                "/exceptions",
                "the rows of exceptions by file and kind, when they were loaded, and the problems of newer ones",
            ),
            (
                "/fleet",
                "this instance and, with Redis, the others: which rules and live exceptions each one has",
            ),
            ("/store", "the state of Redis and of the breakers"),
            ("/tls", "the active certificates, and the problems of newer files"),
            ("/build", "name and version"),
        ];
        assert_eq!(listed, expected);
    }
}
