//! What the admin port shows.

use std::sync::Arc;

use serde_json::{Value, json};

use super::rules::RuleKeeper;
use super::status::timestamp;
use super::stores::Stores;
use crate::rules::{RulesStatus, rlconfig};
use crate::transport::http::Endpoint;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Every page.
pub(super) fn all(rules: &RuleKeeper, stores: &Arc<Stores>) -> Vec<Endpoint> {
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
        render: Arc::new(move || pretty(&describe(&status.lock()))),
    };
    let stores = Arc::clone(stores);
    let store = Endpoint {
        path: "/store",
        summary: "where the counters are, and how the workers get on with Redis",
        content_type: JSON,
        render: Arc::new(move || pretty(&stores.status.describe(&stores))),
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

fn describe(status: &RulesStatus) -> Value {
    let last_error = status.last_error.as_ref().map(|error| {
        let problems: Vec<_> = error.problems.all().iter().map(ToString::to_string).collect();
        json!({"at": timestamp(error.at_us), "problems": problems})
    });
    let warnings: Vec<_> = status.warnings.iter().map(ToString::to_string).collect();
    json!({
        "in_force": last_error.is_none(),
        "generation": status.generation,
        "loaded_at": timestamp(status.loaded_at_us),
        "files": status.files,
        "domains": status.domains,
        "rules": status.rules,
        "warnings": warnings,
        "last_error": last_error,
        "loads_ok": status.loads_ok,
        "loads_failed": status.loads_failed,
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
