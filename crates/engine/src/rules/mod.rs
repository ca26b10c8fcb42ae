//! Compiles rules, matches descriptors, hides secret values and applies exceptions. Of a request it only needs entries.

pub(crate) mod exceptions;
pub(crate) mod rule_set;
pub(crate) mod secret;
pub(crate) mod spec;
pub(crate) mod wildcards;
