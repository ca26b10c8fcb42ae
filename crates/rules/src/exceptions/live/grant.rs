//! When a grant ends that does not say it.

use engine::{ExceptionRow, RuleSet};

/// Returns the latest end of the windows that contain the grant's start, of all limits that the grant can apply to;
/// microseconds since the epoch. `None` if no such limit has windows that end.
#[must_use]
pub fn grant_end(row: &ExceptionRow, rules: &RuleSet) -> Option<u64> {
    let from_us = row.from_us?;
    let named = rules.rules().iter().filter(|rule| {
        let path = rule.path_in_domain();
        // Keys and values of a path are joined: `key_value.key`.
        let joined = format!(".{path}.");
        let has_key = ['.', '_'].iter().any(|end| joined.contains(&format!(".{}{end}", row.key)));
        row.domain.matches(&rule.domain) && row.path.matches(path) && has_key
    });
    let limits = named.flat_map(|rule| &rule.limits).filter(|limit| row.limit_name.matches(limit.name()));
    limits.filter_map(|limit| limit.window_at(from_us)).map(|(_, end_us)| end_us).max()
}
