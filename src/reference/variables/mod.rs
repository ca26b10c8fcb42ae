//! The environment variables of `envoyproxy/ratelimit`, translated to settings of ours, so that the service can replace
//! it without a change of the environment.
//!
//! [`table`] lists every variable and what it does here; the other files translate the values. Knows nothing of the
//! process: the variables are arguments.

mod draft;
mod go_syntax;
mod limits;
mod listeners;
mod metrics;
mod precedence;
mod redis;
mod redis_table;
mod rules;
mod stats_table;
mod statsd;
mod table;
mod traces;
mod usage;
mod values;
mod variable;
mod xds;
mod xds_table;

#[cfg(test)]
mod tests;

pub use usage::EnvironmentUse;
pub use variable::ReferenceVariable;

pub(crate) use precedence::add_translated;
pub(crate) use usage::{ASKED, asked_values};

use draft::{Draft, Translation};
use values::Values;

/// Every variable of `envoyproxy/ratelimit`, in the order of the documentation.
pub(crate) fn variables() -> Vec<ReferenceVariable> {
    table::all().chain(table::of_libraries()).copied().collect()
}

/// Whether a variable of this name belongs to `envoyproxy/ratelimit`, or did once.
pub(crate) fn is_known(name: &str) -> bool {
    table::find(name).is_some()
        || table::find_of_library(name).is_some()
        || name.starts_with(values::MOGRIFIER_PREFIX)
        || draft::NOT_READ_THERE.iter().any(|(known, _)| *known == name)
}

/// Translates the variables. Those that are not set have the defaults of `envoyproxy/ratelimit` where another default
/// would change which limits are in force.
pub(crate) fn translate<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)> + Clone) -> Translation {
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
