//! The path under which the hits of a rule are counted, as `envoyproxy/ratelimit` names them: the path of the rule,
//! with values of the request where `detailed_metric` or `value_to_metric` ask for them.

use super::matcher::Walk;
use super::rule::{Rule, StatPath};

/// The path for a descriptor with these keys and values; `None` if it is the path of the rule. In place of a secret
/// value is its hash.
pub(super) fn stat_path<'e>(
    rule: &Rule,
    walk: &Walk<'_>,
    entries: impl Iterator<Item = (&'e str, &'e str)>,
) -> Option<Box<str>> {
    if rule.stat_path == StatPath::OfRule {
        return None;
    }
    let nodes = || walk.steps.iter().map(|step| step.node());
    let has_shared = nodes().any(|node| node.shares_counter);
    let mut path = String::from(&*rule.domain);
    for (node, (key, value)) in nodes().zip(entries) {
        path.push('.');
        match rule.stat_path {
            // Without a shared level, an empty value leaves its separator.
            StatPath::Detailed if !has_shared => path.extend([key, "_", value]),
            StatPath::Detailed if node.shares_counter => path.push_str(&node.composite),
            StatPath::Detailed => push_value(&mut path, key, value),
            StatPath::PerLevel if node.takes_value => push_value(&mut path, key, value),
            StatPath::PerLevel | StatPath::OfRule => path.push_str(&node.composite),
        }
    }
    Some(path.into())
}

fn push_value(path: &mut String, key: &str, value: &str) {
    path.push_str(key);
    if !value.is_empty() {
        path.extend(["_", value]);
    }
}
