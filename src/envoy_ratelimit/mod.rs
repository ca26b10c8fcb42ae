//! Translates the environment variables of `envoyproxy/ratelimit` to ratelimitd settings, so that ratelimitd can
//! replace it in the same environment. `table` lists every variable with its effect; `environment` decides whether they
//! are read, and which settings win. `telemetry/envoy_ratelimit/` exports what envoyproxy/ratelimit exports; decision
//! 48 explains the separation.

mod certificates;
mod draft;
mod environment;
mod go_syntax;
mod limits;
mod listeners;
mod metrics;
mod redis;
mod rule_source;
mod statsd;
mod table;
#[cfg(test)]
mod tests;
mod traces;
mod variable;

pub use environment::EnvironmentUse;
pub use variable::RatelimitVariable;

use crate::settings::Written;
use draft::Draft;

/// Every variable of `envoyproxy/ratelimit`, in documentation order.
pub fn ratelimit_variables() -> Vec<RatelimitVariable> {
    table::OWN.iter().chain(&table::LIBRARIES).copied().collect()
}

/// `true` if a variable of this name belongs to `envoyproxy/ratelimit`, or did once.
pub(crate) fn is_known(name: &str) -> bool {
    table::known(name).is_some()
        || name.starts_with(draft::MOGRIFIER_PREFIX)
        || draft::NOT_READ.iter().any(|(known, _)| *known == name)
}

/// Adds the settings that the variables set to those that were written. Returns the variables with valid values.
pub(crate) fn add_translated(written: &mut Written) -> Vec<&'static str> {
    let Draft { layer, set, problems, warnings, .. } =
        translate(&written.variables, written.get("server.admin.address").is_some());
    written.problems.extend(problems);
    written.warnings.extend(warnings);
    environment::add_layer(written, layer);
    set.into_keys().collect()
}

/// Translates the variables. Unset ones have the defaults of `envoyproxy/ratelimit` if a different default would change
/// which limits apply.
fn translate(variables: &[(String, String)], has_own_admin_address: bool) -> Draft {
    let mut draft = Draft::new(variables);
    listeners::translate(&mut draft, has_own_admin_address);
    rule_source::translate(&mut draft);
    limits::translate(&mut draft);
    redis::translate(&mut draft);
    metrics::translate(&mut draft);
    statsd::translate(&mut draft);
    traces::translate(&mut draft);
    draft.warn_about_meaningless();
    draft.warn_about_unread(variables);
    draft
}
