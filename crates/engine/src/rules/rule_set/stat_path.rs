//! Names under which the metrics of `envoyproxy/ratelimit` count the hits of a rule.

use super::{Rule, StatPath, Walk};

impl Rule {
    /// Returns the stat path of a descriptor with these keys and values, with hashes instead of secret values. Not for
    /// [`StatPath::OfRule`].
    pub(crate) fn stat_path<'e>(
        &self,
        walk: &Walk<'_>,
        entries: impl Iterator<Item = (&'e str, &'e str)>,
    ) -> Box<str> {
        let nodes = || walk.steps.iter().map(|step| step.node());
        let has_shared = nodes().any(|node| node.shares_counter);
        let mut path = String::from(&*self.domain);
        for (node, (key, value)) in nodes().zip(entries) {
            path.push('.');
            match self.stat_path {
                // Without a shared level, an empty value leaves its separator.
                StatPath::Detailed if !has_shared => path.extend([key, "_", value]),
                StatPath::Detailed if node.shares_counter => path.push_str(&node.composite),
                StatPath::Detailed => push_value(&mut path, key, value),
                StatPath::PerLevel if node.takes_value => push_value(&mut path, key, value),
                StatPath::PerLevel | StatPath::OfRule => path.push_str(&node.composite),
            }
        }
        path.into()
    }
}

fn push_value(path: &mut String, key: &str, value: &str) {
    path.push_str(key);
    if !value.is_empty() {
        path.extend(["_", value]);
    }
}
