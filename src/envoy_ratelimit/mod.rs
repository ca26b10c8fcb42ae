//! The environment variables of `envoyproxy/ratelimit`, translated to settings of ours, so that the service can replace
//! it without a change of the environment. `cli/load_settings.rs` adds them to the settings. What the service exports
//! like `envoyproxy/ratelimit` is in `telemetry/envoy_ratelimit/`; decision 48 says why that is not in one room.
//!
//! `table` lists every variable and what it does here; `environment` says whether the variables are read, and which
//! settings win; the other files translate the values.

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

/// Every variable of `envoyproxy/ratelimit`, in the order of the documentation.
#[must_use]
pub fn ratelimit_variables() -> Vec<RatelimitVariable> {
    table::OWN.iter().chain(&table::LIBRARIES).copied().collect()
}

/// Whether a variable of this name belongs to `envoyproxy/ratelimit`, or did once.
pub(crate) fn is_known(name: &str) -> bool {
    table::known(name).is_some()
        || name.starts_with(draft::MOGRIFIER_PREFIX)
        || draft::NOT_READ.iter().any(|(known, _)| *known == name)
}

/// Adds the settings that the variables mean to those that were written. Returns the variables that are set to values
/// that can be used.
pub(crate) fn add_translated(written: &mut Written) -> Vec<&'static str> {
    let Draft { layer, set, problems, warnings, .. } = translate(&written.variables);
    written.problems.extend(problems);
    written.warnings.extend(warnings);
    environment::add_layer(written, layer);
    set.into_keys().collect()
}

/// Translates the variables. Those that are not set have the defaults of `envoyproxy/ratelimit` where another default
/// would change which limits are in force.
fn translate(variables: &[(String, String)]) -> Draft {
    let mut draft = Draft::new(variables);
    listeners::translate(&mut draft);
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
