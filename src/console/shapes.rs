//! Requests without a limit, by the names of their keys, and unknown domains. Values are never kept.

use std::collections::HashMap;

use engine::{HeavyKey, RuleSet};

use super::steps::Steps;
use crate::telemetry::metrics::{CountedKeys, LOOKED_AT};

/// Maximum shapes and domains kept: the most frequent ones.
const MOST: usize = 64;
/// Rates are averaged over a minute.
const RATE_STEPS: u64 = 6;

#[derive(Debug, Default)]
pub(super) struct Shapes {
    without_limit: HashMap<Box<str>, Steps>,
    unknown_domains: HashMap<Box<str>, Steps>,
}

/// A key of first entries that no rule of their domain has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UnknownKey {
    pub(super) domain: String,
    pub(super) key: String,
    /// First-level keys of the domain.
    pub(super) known: Vec<String>,
    /// Requests per second.
    pub(super) rate: f64,
}

impl Shapes {
    pub(super) fn add(&mut self, counted: &CountedKeys, second: u64) {
        add_all(&mut self.without_limit, counted.without_limit.keys(), second);
        add_all(&mut self.unknown_domains, counted.unknown_domains.keys(), second);
    }

    /// Forgets what was not seen for 15 minutes.
    pub(super) fn advance(&mut self, second: u64) {
        for map in [&mut self.without_limit, &mut self.unknown_domains] {
            map.retain(|_, steps| {
                steps.advance(second);
                steps.sum() > 0
            });
        }
    }

    /// The most frequent shapes of the last minute, with requests per second.
    pub(super) fn most_without_limit(&self, most: usize) -> Vec<(&str, f64)> {
        sorted(&self.without_limit, most)
    }

    pub(super) fn most_unknown_domains(&self, most: usize) -> Vec<(&str, f64)> {
        sorted(&self.unknown_domains, most)
    }

    /// The most frequent first-level key without a rule.
    pub(super) fn unknown_key(&self, rules: &RuleSet) -> Option<UnknownKey> {
        sorted(&self.without_limit, MOST).into_iter().find_map(|(shape, rate)| {
            let (domain, names) = shape.split_once(": ")?;
            let key = names.split(", ").next()?;
            let root = &rules.domain(domain)?.root;
            // A wildcard can match any key.
            let has_key = |name: &str| name == key || name.contains('*');
            let mut known: Vec<_> = root.children().map(|node| node.key.to_string()).collect();
            if known.iter().any(|name| has_key(name)) {
                return None;
            }
            known.sort();
            known.dedup();
            Some(UnknownKey { domain: domain.to_owned(), key: key.to_owned(), known, rate })
        })
    }
}

fn add_all(map: &mut HashMap<Box<str>, Steps>, counted: &[HeavyKey], second: u64) {
    for HeavyKey { key, count, error, .. } in counted {
        map.entry(key.as_str().into()).or_default().add(second, (count - error) * u64::from(LOOKED_AT));
    }
    while map.len() > MOST {
        let smallest = map.iter().min_by_key(|(_, steps)| steps.rank()).map(|(key, _)| key.clone());
        let Some(smallest) = smallest else { return };
        map.remove(&smallest);
    }
}

fn sorted(map: &HashMap<Box<str>, Steps>, most: usize) -> Vec<(&str, f64)> {
    let seconds = (RATE_STEPS * super::steps::STEP_S) as f64;
    let rates = map.iter().map(|(key, steps)| (&**key, steps.newest_steps(RATE_STEPS) as f64 / seconds));
    let mut rates: Vec<_> = rates.filter(|(_, rate)| *rate > 0.0).collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    rates.truncate(most);
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_keeps_what_is_frequent_now() {
        let mut shapes = Shapes::default();
        for second in 1..=303 {
            let mut counted = [CountedKeys::default(), CountedKeys::default()];
            // 70 shapes at one request per second, then another one at 100.
            for shape in 0..70 {
                counted[shape % 2].without_limit.count(&format!("d: old {shape}"), || ());
            }
            if second > 300 {
                (0..100).for_each(|_| counted[0].without_limit.count("d: new", || ()));
            }
            counted.iter().for_each(|counted| shapes.add(counted, second));
            shapes.advance(second);
        }
        assert_eq!(shapes.most_without_limit(1)[0].0, "d: new");
    }
}
