//! The limits that were asked, by their labels: the number of each row, and its texts. A process may have ten thousand
//! rules and shows few of them, so a row is made when it is needed, and a text when it is shown. It keeps the rules of
//! its rows and no others: a set of rules that is no longer in force is freed without waiting for the console.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use base::with_commas;
use engine::{Limit, Quantity, Rule, RuleSet};

use super::limits::LimitName;
use super::state::{ConsoleRule, RuleName};

/// Further limits with the same label are only counted.
const MOST_TEXTS: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// The rules that the rows are of.
    rules: Weak<RuleSet>,
    /// The number of different labels in the rules.
    labels: usize,
    pub(super) rows: HashMap<LimitName, CatalogRow>,
    next_id: u32,
}

/// The limits with one label.
#[derive(Debug)]
pub(super) struct CatalogRow {
    /// Kept by a reload.
    pub(super) id: u32,
    /// The first rule with such a limit; `None` for limits that come with requests.
    rule: Option<Arc<Rule>>,
    /// The limits with different texts, the first ones of them.
    limits: Vec<Arc<Limit>>,
}

impl Catalog {
    /// Takes over the rules in force. Returns whether they are others than before.
    pub(super) fn update(&mut self, rules: &Arc<RuleSet>) -> bool {
        if std::ptr::eq(self.rules.as_ptr(), Arc::as_ptr(rules)) {
            return false;
        }
        self.labels =
            counted(rules).map(|(rule, limit)| (&rule.domain, &limit.label)).collect::<HashSet<_>>().len();
        self.rules = Arc::downgrade(rules);
        self.find_limits(rules);
        // The others are of rules that are gone.
        self.rows.retain(|_, row| row.rule.is_some());
        true
    }

    /// Finds the limits of every row in the rules.
    fn find_limits(&mut self, rules: &RuleSet) {
        for row in self.rows.values_mut() {
            row.rule = None;
            row.limits.clear();
        }
        for (rule, limit) in counted(rules) {
            let Some(row) = self.rows.get_mut(&name_of(rule, limit)) else { continue };
            row.rule.get_or_insert_with(|| Arc::clone(rule));
            let has_other_text = |known: &Arc<Limit>| rate(known) != rate(limit);
            if row.limits.len() < MOST_TEXTS && row.limits.iter().all(has_other_text) {
                row.limits.push(Arc::clone(limit));
            }
        }
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    /// Adds the rows of these limits that it does not have.
    pub(super) fn add_missing<'n>(&mut self, names: impl Iterator<Item = &'n LimitName>) {
        let before = self.rows.len();
        for name in names {
            if !self.rows.contains_key(name) {
                let id = self.new_id();
                self.rows.insert(name.clone(), CatalogRow { id, rule: None, limits: Vec::new() });
            }
        }
        // Without these rules the next ones are taken over within a second.
        if self.rows.len() > before
            && let Some(rules) = self.rules.upgrade()
        {
            self.find_limits(&rules);
        }
    }

    /// Adds the rows of all limits in the rules.
    pub(super) fn add_all(&mut self) {
        let Some(rules) = self.rules.upgrade() else { return };
        let names: Vec<_> = counted(&rules).map(|(rule, limit)| name_of(rule, limit)).collect();
        self.add_missing(names.iter());
    }

    /// How many labels there are, in the rules and in limits that came with requests.
    pub(super) fn len(&self) -> usize {
        self.labels + self.rows.values().filter(|row| row.rule.is_none()).count()
    }
}

impl CatalogRow {
    /// The text of one of the limits, by its kernel; `None` if the row has no other one to tell it apart from.
    pub(super) fn limit_text(&self, quantity: Quantity) -> Option<String> {
        let limit = self.limits.iter().find(|limit| limit.quantity == quantity)?;
        (self.limits.len() > 1).then(|| rate(limit))
    }

    /// The texts that are shown of the row with this name, without numbers.
    pub(super) fn named(&self, (domain, label): &LimitName) -> ConsoleRule {
        let named = |limit: String, kind: &str| ConsoleRule {
            id: self.id,
            shown: RuleName {
                domain: domain.to_string(),
                rule: label.to_string(),
                limit,
                kind: kind.to_owned(),
            },
            ..ConsoleRule::default()
        };
        let (Some(rule), Some(first)) = (&self.rule, self.limits.first()) else {
            return named("with the request".to_owned(), "override");
        };
        let kind = match first.shadow {
            true => "shadow",
            false if rule.quota => "quota",
            false => "enforced",
        };
        let rates: Vec<_> = self.limits.iter().map(|limit| rate(limit)).collect();
        ConsoleRule {
            path: Some(rule.path_in_domain().to_owned()),
            name: first.name().to_owned(),
            how: algorithm(first),
            ..named(rates.join(" / "), kind)
        }
    }
}

/// The limits that are counted, each with its rule.
fn counted(rules: &RuleSet) -> impl Iterator<Item = (&Arc<Rule>, &Arc<Limit>)> {
    let all = rules.rules().iter().flat_map(|rule| rule.limits.iter().map(move |limit| (rule, limit)));
    all.filter(|(_, limit)| limit.quantity != Quantity::Unlimited)
}

fn name_of(rule: &Rule, limit: &Limit) -> LimitName {
    (Arc::clone(&rule.domain), Arc::clone(&limit.label))
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
