//! Upgrades: a table in the settings that changes limits whose source has no keys for it, such as an xDS server. The
//! first matching row applies.

use std::collections::BTreeMap;
use std::error::Error;
use std::str::FromStr;

use engine::{Algorithm, Defaults, Glob, Limit, LimitId, LimitSpec, Pacing, Refill};

use super::keys::{LIMIT_FIELDS, LimitField, PlainValue, ValueType};
use super::problem::{Problem, ProblemCollector};
use super::read::{DomainDraft, LimitDraft, NodeDraft};

/// One row of the table: the limits that it applies to, and the fields that it sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrade {
    /// Matched against the domain.
    pub domain: Glob,
    /// Matched against the keys and values of the rule, joined by dots: `key_value.key`.
    pub path: Glob,
    /// Matched against the limit's name, which may be empty.
    pub limit_name: Glob,
    /// The row's cells by the name of a column of [`UpgradeColumn::all`], each with a string that the column accepts.
    pub fields: BTreeMap<&'static str, String>,
}

/// A column that sets a field of a limit, or `shadow_mode` of its whole rule.
#[derive(Clone, Copy, Debug)]
pub struct UpgradeColumn {
    pub name: &'static str,
    value_type: ValueType,
}

/// The column that changes the whole rule.
const SHADOW_MODE: &str = "shadow_mode";

impl UpgradeColumn {
    /// In the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_limit = LIMIT_FIELDS.iter().filter(|field| field.is_upgradable);
        let column = |field: &LimitField| Self { name: field.name, value_type: field.value_type };
        of_limit.map(column).chain([Self { name: SHADOW_MODE, value_type: ValueType::Flag }])
    }

    /// What the column accepts, for messages.
    pub fn expected(self) -> String {
        match self.value_type {
            ValueType::Choice(names) => format!("one of {}", names.join(", ")),
            ValueType::Integer(least) => format!("a whole number from {least} to {}", u32::MAX),
            ValueType::Shares => "1 to 8 different shares above 0 and up to 1, such as 0.8,1".to_owned(),
            value_type => value_type.expected(),
        }
    }

    pub fn accepts(self, text: &str) -> bool {
        self.value_type.of_cell(text).is_some()
    }
}

/// A limit that a row changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradedLimit {
    pub limit: LimitId,
    pub row: usize,
    /// For an operator: the fields that come from the row.
    pub sources: String,
}

/// Applies the rows to matching limits and returns the changed limits in order. A row that would make a limit invalid
/// leaves it unchanged, with a warning: rules of another source must not be rejected because of it.
pub(super) fn apply(
    domains: &mut [DomainDraft],
    rows: &[Upgrade],
    defaults: Defaults,
    problems: &mut ProblemCollector,
) -> Vec<UpgradedLimit> {
    let mut table = Table { rows, defaults, problems, next: 0, upgraded: Vec::new() };
    if !rows.is_empty() {
        for DomainDraft { name, nodes, .. } in domains {
            table.apply_level(nodes, name, "");
        }
    }
    table.upgraded
}

struct Table<'t> {
    rows: &'t [Upgrade],
    defaults: Defaults,
    problems: &'t mut ProblemCollector,
    /// The compiler numbers the limits in the same order.
    next: u32,
    upgraded: Vec<UpgradedLimit>,
}

impl Table<'_> {
    fn apply_level(&mut self, nodes: &mut [NodeDraft], domain: &str, above: &str) {
        for node in nodes {
            let composite = node.spec.composite();
            let path = if above.is_empty() { composite } else { format!("{above}.{composite}") };
            self.apply_node(node, domain, &path);
            self.apply_level(&mut node.nodes, domain, &path);
        }
    }

    fn apply_node(&mut self, node: &mut NodeDraft, domain: &str, path: &str) {
        let mut shadow_mode = None;
        for index in 0..node.limits.len() {
            let limit = LimitId(self.next);
            self.next += 1;
            let draft = &node.limits[index];
            let name = draft.limit.spec.name.as_deref().unwrap_or_default();
            let fits = |row: &Upgrade| {
                row.domain.matches(domain) && row.path.matches(path) && row.limit_name.matches(name)
            };
            let Some(row) = self.rows.iter().position(fits).filter(|_| !draft.limit.spec.unlimited) else {
                continue;
            };
            let upgrade = &self.rows[row];
            match upgrade.upgraded(&node.limits, index, self.defaults) {
                Ok(changed) => {
                    let columns: Vec<_> = upgrade.fields.keys().copied().collect();
                    let sources = format!("from upgrades[{row}] of the settings: {}", columns.join(", "));
                    node.limits[index].limit = changed;
                    shadow_mode =
                        shadow_mode.or(upgrade.value(SHADOW_MODE, ValueType::Flag).map(PlainValue::flag));
                    self.upgraded.push(UpgradedLimit { limit, row, sources });
                }
                Err(reason) => {
                    let reason = format!("upgrades[{row}] of the settings is not applied: {reason}");
                    self.problems.push(Problem::warning(draft.location.clone(), reason));
                }
            }
        }
        if let (Some(shadow_mode), Some(rule)) = (shadow_mode, &mut node.spec.rule) {
            rule.shadow = shadow_mode;
        }
    }
}

impl Upgrade {
    /// The limit `index` of `limits` with the fields of this row.
    ///
    /// # Errors
    /// Why the row is not applied to the limit.
    fn upgraded(
        &self,
        limits: &[LimitDraft],
        index: usize,
        defaults: Defaults,
    ) -> Result<Limit, Box<dyn Error>> {
        let changed = self.changed(&limits[index], defaults)?;
        changed.check_reserve()?;
        let changed = Limit::new(changed)?;
        let mut others = limits.iter().enumerate().filter(|(other, _)| *other != index);
        if others.any(|(_, other)| other.limit.counts_like(&changed)) {
            return Err("another limit of the descriptor would have the same counter".into());
        }
        Ok(changed)
    }

    fn changed(&self, draft: &LimitDraft, defaults: Defaults) -> Result<LimitSpec, String> {
        let (before, written) = (&draft.limit.spec, draft.written);
        if before.algorithm == Algorithm::Concurrency && self.sets("algorithm") {
            return Err("a limit with concurrency keeps its algorithm".to_owned());
        }
        let mut spec = before.clone();
        for LimitField { name, value_type, set, .. } in LIMIT_FIELDS {
            if let (Some(set), Some(value)) = (set, self.value(name, *value_type)) {
                set(&mut spec, value);
            }
        }
        if !spec.algorithm.has_burst() {
            if self.sets("burst") {
                return Err(format!("{} does not take a burst", spec.algorithm));
            }
            spec.burst = None;
        }
        if spec.algorithm != before.algorithm {
            (spec.refill, spec.pacing) = (Refill::default(), Pacing::default());
        }
        if !self.sets("charging") && !written.charging {
            // As in a rule, naming an algorithm makes the limit prepaid.
            let names_algorithm = self.sets("algorithm") || written.algorithm;
            spec.charging = defaults.charging_of(spec.on_over, names_algorithm);
        }
        Ok(spec)
    }

    pub fn sets(&self, column: &str) -> bool {
        self.fields.contains_key(column)
    }

    /// Parses a cell whose column has names; `None` without the cell.
    pub fn parsed<T: FromStr>(&self, column: &str) -> Option<T> {
        self.fields.get(column)?.parse().ok()
    }

    fn value(&self, column: &str, value_type: ValueType) -> Option<PlainValue<'_>> {
        value_type.of_cell(self.fields.get(column)?)
    }
}
