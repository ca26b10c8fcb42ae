//! The texts of the limits in force, by their labels, and the number of each row.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Limit, Quantity, Rule, RuleSet};

use super::limits::LimitName;

/// Further limits with the same label are only counted.
const MOST_TEXTS: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// The rules that the texts are of.
    rules: Option<Arc<RuleSet>>,
    rows: HashMap<LimitName, CatalogRow>,
    next_id: u32,
}

/// The limits with one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatalogRow {
    /// Kept by a reload.
    pub(super) id: u32,
    /// The path of the first rule below its domain, and the name of its limit, as exceptions have them.
    pub(super) path: Option<String>,
    pub(super) limit_name: String,
    pub(super) limit: String,
    pub(super) how: String,
    pub(super) kind: LimitKind,
}

/// What a denial by the limit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKind {
    Enforced,
    Shadow,
    Quota,
    Override,
}

impl LimitKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Shadow => "shadow",
            Self::Quota => "quota",
            Self::Override => "override",
        }
    }
}

impl Catalog {
    /// Takes over the rules in force. Returns whether they are others than before.
    pub(super) fn update(&mut self, rules: &Arc<RuleSet>) -> bool {
        if self.rules.as_ref().is_some_and(|known| Arc::ptr_eq(known, rules)) {
            return false;
        }
        let before = std::mem::take(&mut self.rows);
        for rule in rules.rules() {
            for limit in rule.limits.iter().filter(|limit| limit.quantity != Quantity::Unlimited) {
                let kind = match limit.shadow {
                    true => LimitKind::Shadow,
                    false if rule.quota => LimitKind::Quota,
                    false => LimitKind::Enforced,
                };
                self.add(rule, limit, kind, &before);
            }
        }
        self.rules = Some(Arc::clone(rules));
        true
    }

    fn add(&mut self, rule: &Rule, limit: &Limit, kind: LimitKind, before: &HashMap<LimitName, CatalogRow>) {
        let name = (Arc::clone(&rule.domain), Arc::clone(&limit.label));
        let (text, how) = (rate(limit), algorithm(limit));
        if let Some(row) = self.rows.get_mut(&name) {
            let texts = row.limit.split(" / ").count();
            if texts < MOST_TEXTS && row.limit.split(" / ").all(|known| known != text) {
                row.limit.extend([" / ", &text]);
            }
            return;
        }
        let id = match before.get(&name) {
            Some(known) => known.id,
            None => self.new_id(),
        };
        let (path, limit_name) = (Some(rule.path_in_domain().to_owned()), limit.name().to_owned());
        self.rows.insert(name, CatalogRow { id, path, limit_name, limit: text, how, kind });
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    /// Adds rows for limits that come with requests.
    pub(super) fn add_missing<'n>(&mut self, names: impl Iterator<Item = &'n LimitName>) {
        for name in names {
            if !self.rows.contains_key(name) {
                let id = self.new_id();
                let limit = "with the request".to_owned();
                let (how, limit_name) = (String::new(), String::new());
                let row = CatalogRow { id, path: None, limit_name, limit, how, kind: LimitKind::Override };
                self.rows.insert(name.clone(), row);
            }
        }
    }

    pub(super) fn row(&self, name: &LimitName) -> Option<&CatalogRow> {
        self.rows.get(name)
    }

    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = (&LimitName, &CatalogRow)> {
        self.rows.iter()
    }
}

fn rate(limit: &Limit) -> String {
    let spec = &limit.spec;
    match spec.requests_per_unit {
        0 => "blocks".to_owned(),
        units => format!("{} per {}", with_commas(units), spec.period),
    }
}

fn algorithm(limit: &Limit) -> String {
    let spec = &limit.spec;
    let name = spec.algorithm.name();
    match spec.burst {
        Some(burst) if spec.algorithm.has_burst() => {
            format!("{name}, burst {}", with_commas(u64::from(burst)))
        }
        _ => name.to_owned(),
    }
}

/// A number with a comma after each three digits.
pub(crate) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let groups =
        digits.as_bytes()[first..].chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let head = (first > 0).then(|| digits[..first].to_owned());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        let table = [(0, "0"), (999, "999"), (1_000, "1,000"), (60_000, "60,000"), (2_000_000, "2,000,000")];
        for (number, text) in table {
            assert_eq!(with_commas(number), text);
        }
    }
}
