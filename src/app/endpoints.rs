//! The endpoints of the admin port.

use std::sync::Arc;

use serde_json::{Value, json};

use super::rules::LiveRules;
use super::status::{rules_page, store_page};
use super::stores::Stores;
use crate::rules::rlconfig;
use crate::transport::http::Endpoint;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

pub(super) fn admin_endpoints(rules: &LiveRules, stores: &Arc<Stores>) -> Vec<Endpoint> {
    let rulebook = Arc::clone(&rules.rulebook);
    let in_force = Endpoint {
        path: "/rlconfig",
        summary: "the limits in force, one line each",
        content_type: TEXT,
        render: Arc::new(move || rlconfig(&rulebook.rules())),
    };
    let status = Arc::clone(&rules.status);
    let history = Endpoint {
        path: "/rules",
        summary: "when the rules were loaded, and what is wrong with newer ones",
        content_type: JSON,
        render: Arc::new(move || pretty(&rules_page(&status.lock()))),
    };
    let stores = Arc::clone(stores);
    let store = Endpoint {
        path: "/store",
        summary: "where the counters are, and how the workers get on with Redis",
        content_type: JSON,
        render: Arc::new(move || pretty(&store_page(&stores.view()))),
    };
    let build = Endpoint {
        path: "/build",
        summary: "which program this is",
        content_type: JSON,
        render: Arc::new(|| {
            pretty(&json!({"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")}))
        }),
    };
    vec![in_force, history, store, build]
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
