//! Which descriptors of a map the lines of a log had, and why a descriptor was never sent.

use super::Map;
use crate::entry::{DescriptorRule, EntryRule, EntrySource, Step};

/// Descriptors that a line had, by position in the map. The last bit covers all from the 64th on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentDescriptors(u64);

impl SentDescriptors {
    pub fn add(&mut self, descriptor: usize) {
        self.0 |= 1 << descriptor.min(63);
    }

    pub fn add_all(&mut self, others: Self) {
        self.0 |= others.0;
    }

    fn holds(self, descriptor: usize) -> bool {
        self.0 >> descriptor.min(63) & 1 == 1
    }
}

impl Map {
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Why no line had a descriptor with these keys; `None` if a line did.
    pub fn why_unsent(&self, keys: &[&str], sent: SentDescriptors) -> Option<String> {
        let has_keys = |rule: &DescriptorRule| rule.entries.iter().map(|entry| &*entry.key).eq(keys.to_vec());
        let mut with_keys = self.descriptors.iter().enumerate().filter(|(_, rule)| has_keys(rule)).peekable();
        if with_keys.peek().is_none() {
            let is_known = |key: &&str| {
                self.descriptors.iter().any(|rule| rule.entries.iter().any(|entry| entry.key == **key))
            };
            let unknown: Vec<&str> = keys.iter().copied().filter(|key| !is_known(key)).collect();
            let missing = if unknown.is_empty() { keys.join(",") } else { unknown.join(", ") };
            return Some(format!("the map sends no {missing}"));
        }
        let mut reasons = Vec::new();
        for (position, rule) in with_keys {
            if sent.holds(position) {
                return None;
            }
            reasons.push(self.why_no_line(rule));
        }
        Some(format!("the map sends no {}: {}", keys.join(","), reasons.join("; ")))
    }

    /// Why no line had any descriptor.
    pub fn why_nothing_sent(&self) -> String {
        let reasons = self.descriptors.iter().map(|rule| {
            let keys: Vec<&str> = rule.entries.iter().map(|entry| &*entry.key).collect();
            format!("the map sends no {}: {}", keys.join(","), self.why_no_line(rule))
        });
        reasons.collect::<Vec<_>>().join("; ")
    }

    fn why_no_line(&self, rule: &DescriptorRule) -> String {
        let values: Vec<String> = rule.entries.iter().filter_map(|entry| self.needed_value(entry)).collect();
        match (&rule.when, values.is_empty()) {
            (Some(_), true) => "its `when` holds for no line".to_owned(),
            (Some(_), false) => format!("no line for which its `when` holds has {}", values.join(" and ")),
            (None, _) => format!("no line has {}", values.join(" and ")),
        }
    }

    /// What a line must have for this entry; `None` if the entry always has a value.
    pub(crate) fn needed_value(&self, entry: &EntryRule) -> Option<String> {
        let EntrySource::Field { field, steps, default: None } = &entry.source else { return None };
        let (name, _) = self.fields.get(field.0)?;
        let special = steps.iter().find_map(|step| match step {
            Step::TrustedHop(hop) => Some(format!("a trusted-hop {hop} in {name}")),
            Step::Network(_) => Some(format!("an address in {name}")),
            _ => None,
        });
        Some(special.unwrap_or_else(|| format!("a value in {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_no_line_had_is_explained() {
        let text = "domain: d\ndescriptors:\n  - - { key: user, from: user }\n  \
                    - - { key: address, from: via, take: trusted-hop 2 }\n    - { key: method, from: method }\n  \
                    - { entries: [{ key: login, value: x }], when: path == /login }\n  \
                    - { entries: [{ key: form, from: body }], when: path == /login }\n";
        let map = Map::parse("m", text).expect("a valid map");
        let mut sent = SentDescriptors::default();
        sent.add(0);
        let table = [
            (&["user"][..], None),
            (&["usr"], Some("the map sends no usr")),
            (&["user", "path"], Some("the map sends no path")),
            (&["method", "address"], Some("the map sends no method,address")),
            (
                &["address", "method"],
                Some(
                    "the map sends no address,method: no line has a trusted-hop 2 in via and a value in method",
                ),
            ),
            (&["login"], Some("the map sends no login: its `when` holds for no line")),
            (
                &["form"],
                Some("the map sends no form: no line for which its `when` holds has a value in body"),
            ),
        ];
        for (keys, reason) in table {
            assert_eq!(map.why_unsent(keys, sent).as_deref(), reason, "{keys:?}");
        }
    }

    #[test]
    fn descriptors_from_the_64th_on_share_a_bit() {
        let mut sent = SentDescriptors::default();
        assert!(!sent.holds(63) && !sent.holds(200));
        sent.add(100);
        assert!(sent.holds(63) && sent.holds(200) && !sent.holds(62));
    }
}
