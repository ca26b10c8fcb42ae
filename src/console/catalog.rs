//! The limits by label: each row's id and its text, which is built when shown. Each label of the current rules has a
//! row, as has each limit that came with a request.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use base::with_commas;
use engine::{Algorithm, Limit, LimitId, Quantity, Rule, RuleSet, Scope};
use store::leases::BorrowedUnits;

use super::limits::LimitName;
use super::live::counted;
use super::state::{ConsoleRule, RuleName};

/// Further limits with the same label are only counted.
const MOST_TEXTS: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// The rules of the rows.
    rules: Weak<RuleSet>,
    pub(super) rows: HashMap<LimitName, CatalogRow>,
    next_id: u32,
}

/// Limits with one label.
#[derive(Debug)]
pub(super) struct CatalogRow {
    /// Survives a reload.
    pub(super) id: u32,
    /// The first rule with such a limit; `None` for limits that come with requests.
    rule: Option<Arc<Rule>>,
    /// The first limits with different texts.
    limits: Vec<Arc<Limit>>,
    /// All limits of the current rules.
    ids: Vec<LimitId>,
}

impl Catalog {
    /// Takes over the current rules. Returns `true` if they changed.
    pub(super) fn update(&mut self, rules: &Arc<RuleSet>) -> bool {
        if std::ptr::eq(self.rules.as_ptr(), Arc::as_ptr(rules)) {
            return false;
        }
        self.rules = Arc::downgrade(rules);
        let before = std::mem::take(&mut self.rows);
        for (rule, limit) in counted_limits(rules) {
            let name = (Arc::clone(&rule.domain), Arc::clone(&limit.label));
            let known = before.get(&name).map(|row| row.id);
            let row = self.row(name, known);
            row.rule.get_or_insert_with(|| Arc::clone(rule));
            row.ids.push(limit.id);
            let has_other_text = |known: &Arc<Limit>| rate(known) != rate(limit);
            if row.limits.len() < MOST_TEXTS && row.limits.iter().all(has_other_text) {
                row.limits.push(Arc::clone(limit));
            }
        }
        true
    }

    /// Adds rows for limits that the rules do not have.
    pub(super) fn add_missing<'n>(&mut self, names: impl Iterator<Item = &'n LimitName>) {
        for name in names {
            if !self.rows.contains_key(name) {
                self.row(name.clone(), None);
            }
        }
    }

    /// Returns the row with this name. A new row gets the id `known`, or otherwise a fresh one.
    fn row(&mut self, name: LimitName, known: Option<u32>) -> &mut CatalogRow {
        self.rows.entry(name).or_insert_with(|| {
            let id = known.unwrap_or(self.next_id);
            self.next_id = self.next_id.wrapping_add(u32::from(known.is_none()));
            CatalogRow { id, rule: None, limits: Vec::new(), ids: Vec::new() }
        })
    }
}

impl CatalogRow {
    /// Returns a limit's text, by its kernel; `None` if the row has only this one.
    pub(super) fn limit_text(&self, quantity: Quantity) -> Option<String> {
        let limit = self.limits.iter().find(|limit| limit.quantity == quantity)?;
        (self.limits.len() > 1).then(|| rate(limit))
    }

    /// Returns the row's texts, without counts. `leases`: what the process borrowed of each limit.
    pub(super) fn named(
        &self,
        (domain, label): &LimitName,
        leases: Option<&HashMap<LimitId, BorrowedUnits>>,
    ) -> ConsoleRule {
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
        let kind = match first.never_denies() && !first.spec.unlimited {
            true => "shadow",
            false if rule.quota => "quota",
            false => "enforced",
        };
        let rates: Vec<_> = self.limits.iter().map(|limit| rate(limit)).collect();
        let of_limits = self.ids.iter().filter_map(|id| leases?.get(id));
        let (keys, held) = of_limits.fold((0, 0), |(keys, held), of| (keys + of.keys, held + of.held));
        ConsoleRule {
            path: Some(rule.path_in_domain().to_owned()),
            name: first.name().to_owned(),
            how: how(first, BorrowedUnits { keys, held }),
            ..named(rates.join(" / "), kind)
        }
    }
}

/// Returns the counted limits, each with its rule.
fn counted_limits(rules: &RuleSet) -> impl Iterator<Item = (&Arc<Rule>, &Arc<Limit>)> {
    let all = rules.rules().iter().flat_map(|rule| rule.limits.iter().map(move |limit| (rule, limit)));
    all.filter(|(_, limit)| limit.quantity != Quantity::Unlimited)
}

fn rate(limit: &Limit) -> String {
    let spec = &limit.spec;
    match spec.requests_per_unit {
        _ if spec.unlimited => "unlimited".to_owned(),
        0 => "blocks".to_owned(),
        slots if spec.algorithm == Algorithm::Concurrency => format!("{} at once", with_commas(slots)),
        units => format!("{} per {}", with_commas(units), spec.period),
    }
}

/// Returns how a limit counts, which Redis counts it, and what this process borrowed of it.
fn how(limit: &Limit, borrowed: BorrowedUnits) -> String {
    let spec = &limit.spec;
    let mut how = spec.algorithm.into_str().to_owned();
    if let Some(burst) = spec.burst.filter(|_| spec.algorithm.has_burst()) {
        how += &format!(", burst {}", with_commas(u64::from(burst)));
    }
    if spec.scope == Scope::Global {
        how += ", at home for all regions";
    }
    match borrowed {
        BorrowedUnits { keys: 0, .. } if spec.is_leased() => how += ", leased",
        BorrowedUnits { keys: 0, .. } => {}
        BorrowedUnits { keys, held } => {
            how += &format!(", leased here: {}, {} held", counted(keys, "key"), counted(held, "unit"));
        }
    }
    how
}
