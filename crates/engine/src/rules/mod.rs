//! Rules: their specs, compiling them, matching descriptors, and the rows that change limits for some values. Knows
//! limits, and nothing of requests but their entries.

pub(crate) mod exceptions;
pub(crate) mod rule_set;
pub(crate) mod secret;
pub(crate) mod spec;
pub(crate) mod wildcards;
