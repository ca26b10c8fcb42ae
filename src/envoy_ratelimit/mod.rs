//! The environment variables of `envoyproxy/ratelimit`, translated to settings of ours, so that the service can replace
//! it without a change of the environment. `cli/load_settings.rs` adds them to the settings. What the service exports
//! like `envoyproxy/ratelimit` is in `telemetry/envoy_ratelimit/`; decision 48 says why that is not in one room.
//!
//! `table` lists every variable and what it does here; `environment` says whether the variables are read, and which
//! settings win; the other files translate the values.

mod draft;
mod environment;
mod go_syntax;
mod limits;
mod listeners;
mod metrics;
mod redis;
mod redis_table;
mod rules;
mod stats_table;
mod statsd;
mod table;
#[cfg(test)]
mod tests;
mod tls;
mod traces;
mod variable;

pub use environment::EnvironmentUse;
pub use variable::RatelimitVariable;

use crate::settings::Written;
use draft::{Draft, Translation, Values};

/// Every variable of `envoyproxy/ratelimit`, in the order of the documentation.
#[must_use]
pub fn ratelimit_variables() -> Vec<RatelimitVariable> {
    table::all().chain(table::of_libraries()).copied().collect()
}

/// Whether a variable of this name belongs to `envoyproxy/ratelimit`, or did once.
pub(crate) fn is_known(name: &str) -> bool {
    table::find(name).is_some()
        || table::find_of_library(name).is_some()
        || name.starts_with(draft::MOGRIFIER_PREFIX)
        || draft::NOT_READ.iter().any(|(known, _)| *known == name)
}

/// Adds the settings that the variables mean to those that were written. Returns the variables that are set to values
/// that can be used.
pub(crate) fn add_translated(written: &mut Written) -> Vec<&'static str> {
    let variables = written.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let Translation { layer, problems, warnings, variables } = translate(variables);
    written.problems.extend(problems);
    written.warnings.extend(warnings);
    environment::add_layer(written, layer);
    variables
}

/// Translates the variables. Those that are not set have the defaults of `envoyproxy/ratelimit` where another default
/// would change which limits are in force.
fn translate<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)> + Clone) -> Translation {
    let mut draft = Draft::new(Values::new(variables.clone()));
    listeners::translate(&mut draft);
    rules::translate(&mut draft);
    limits::translate(&mut draft);
    redis::translate(&mut draft);
    metrics::translate(&mut draft);
    statsd::translate(&mut draft);
    traces::translate(&mut draft);
    draft.warn_about_meaningless();
    draft.warn_about_unread(variables.into_iter().map(|(name, _)| name));
    draft.finish()
}
