//! The metrics of envoyproxy/ratelimit under its names and with its arithmetic, so that dashboards made for it continue
//! to work.
//!
//! Like in envoyproxy/ratelimit, a metric has a dotted name first, which is what statsd gets. Prometheus gets the
//! families and labels to which the default mapping of envoyproxy/ratelimit translates the dotted names.

mod hits;
mod mapping;
mod readings;
mod stats;

pub(crate) use hits::{HitBounds, RuleHits, RuleHitsBinding, RuleHitsTable};
pub(crate) use mapping::write_families;
pub(crate) use readings::{Readings, stats};
pub use stats::{Stat, StatKind};
