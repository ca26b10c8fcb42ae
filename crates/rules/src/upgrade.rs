//! Upgrades: a table in the settings that changes limits whose source has no keys for it, such as those of an xDS
//! server. The first row that matches a limit counts.

use engine::{
    Algorithm, Charging, Defaults, FailurePolicy, Limit, LimitError, LimitId, LimitSpec, Pacing, Pattern,
    Refill, ReserveError,
};

use super::problem::{Problem, ProblemCollector};
use super::read::{DomainDraft, LimitDraft, NodeDraft, WrittenFields};

/// One row of the table: which limits it is for, and the fields that it sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upgrade {
    /// Compared with the domain.
    pub domain: Glob,
    /// Compared with the keys and values of the rule, joined by dots: `key_value.key`.
    pub path: Glob,
    /// Compared with the name of the limit, which may be empty.
    pub limit_name: Glob,
    pub algorithm: Option<Algorithm>,
    pub burst: Option<u32>,
    pub charging: Option<Charging>,
    pub on_store_failure: Option<FailurePolicy>,
    /// Units that a check takes.
    pub reserve: Option<u64>,
    /// Changes the whole rule.
    pub shadow_mode: Option<bool>,
}

/// A text in which each `*` stands for any text.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub enum Glob {
    #[default]
    Any,
    Exact(String),
    Pattern(Pattern),
}

/// A limit that a row has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradedLimit {
    pub limit: LimitId,
    /// The index of the row.
    pub row: usize,
    /// For an operator: which of the fields that a row may set come from the row, which from the rule, and which have
    /// their default.
    pub sources: String,
}

impl Glob {
    #[must_use]
    pub fn new(text: &str) -> Self {
        match Pattern::new(text) {
            _ if text == "*" => Self::Any,
            Some(pattern) => Self::Pattern(pattern),
            None => Self::Exact(text.to_owned()),
        }
    }

    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == text,
            Self::Pattern(pattern) => pattern.matches(text),
        }
    }
}

/// Changes the limits that rows match. A row that would make a limit invalid leaves it as it is, with a warning: rules
/// of another source must not be refused because of it. Returns the changed limits in their order.
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
            let composite = node.composite();
            let path = if above.is_empty() { composite } else { format!("{above}.{composite}") };
            self.apply_node(node, domain, &path);
            self.apply_level(&mut node.nodes, domain, &path);
        }
    }

    fn apply_node(&mut self, node: &mut NodeDraft, domain: &str, path: &str) {
        let mut shadow_mode = None;
        for index in 0..node.rule.limits.len() {
            let limit = LimitId(self.next);
            self.next += 1;
            let draft = &node.rule.limits[index];
            let name = draft.limit.spec.name.as_deref().unwrap_or_default();
            let fits = |row: &Upgrade| {
                row.domain.matches(domain) && row.path.matches(path) && row.limit_name.matches(name)
            };
            let Some(row) = self.rows.iter().position(fits).filter(|_| !draft.limit.spec.unlimited) else {
                continue;
            };
            let upgrade = &self.rows[row];
            match upgrade.upgraded(&node.rule.limits, index, self.defaults) {
                Ok(changed) => {
                    let sources = upgrade.sources(row, draft.written, &changed.spec);
                    node.rule.limits[index].limit = changed;
                    shadow_mode = shadow_mode.or(upgrade.shadow_mode);
                    self.upgraded.push(UpgradedLimit { limit, row, sources });
                }
                Err(reason) => {
                    let reason = format!("upgrades[{row}] of the settings is not applied: {reason}");
                    self.problems.push(Problem::warning(draft.location.clone(), reason));
                }
            }
        }
        if let Some(shadow_mode) = shadow_mode {
            node.rule.shadow = shadow_mode;
        }
    }
}

/// Why a row is not applied to a limit.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("{0} has no burst")]
    NoBurst(Algorithm),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    #[error("another limit of the descriptor would have the same counter")]
    SameCounter,
}

impl Upgrade {
    /// The limit `index` of `limits` with the fields of this row.
    fn upgraded(&self, limits: &[LimitDraft], index: usize, defaults: Defaults) -> Result<Limit, Unfit> {
        let changed = self.changed(&limits[index], defaults)?;
        changed.check_reserve()?;
        let changed = Limit::new(changed)?;
        let mut others = limits.iter().enumerate().filter(|(other, _)| *other != index);
        if others.any(|(_, other)| other.limit.counts_like(&changed)) {
            return Err(Unfit::SameCounter);
        }
        Ok(changed)
    }

    fn changed(&self, draft: &LimitDraft, defaults: Defaults) -> Result<LimitSpec, Unfit> {
        let (before, written) = (&draft.limit.spec, draft.written);
        let algorithm = self.algorithm.unwrap_or(before.algorithm);
        if self.burst.is_some() && !algorithm.has_burst() {
            return Err(Unfit::NoBurst(algorithm));
        }
        let keeps_algorithm = algorithm == before.algorithm;
        // Like a rule, a row that names an algorithm makes a limit prepaid.
        let names_algorithm = self.algorithm.is_some() || written.algorithm;
        let default_charging = defaults.charging_of(before.on_over, names_algorithm);
        let rule_charging = if written.charging { before.charging } else { default_charging };
        Ok(LimitSpec {
            algorithm,
            burst: self.burst.or(before.burst).filter(|_| algorithm.has_burst()),
            refill: if keeps_algorithm { before.refill } else { Refill::default() },
            pacing: if keeps_algorithm { before.pacing } else { Pacing::default() },
            charging: self.charging.unwrap_or(rule_charging),
            on_store_failure: self.on_store_failure.unwrap_or(before.on_store_failure),
            reserve: self.reserve.or(before.reserve),
            ..before.clone()
        })
    }

    fn sources(&self, row: usize, written: WrittenFields, spec: &LimitSpec) -> String {
        let mut fields = vec![
            ("algorithm", self.algorithm.is_some(), written.algorithm),
            ("burst", self.burst.is_some(), spec.burst.is_some()),
            ("charging", self.charging.is_some(), written.charging),
            ("on_store_failure", self.on_store_failure.is_some(), written.on_store_failure),
            // No kind of source can leave it out.
            ("shadow_mode", self.shadow_mode.is_some(), true),
        ];
        if spec.reserve.is_some() {
            fields.push(("reserve", self.reserve.is_some(), true));
        }
        let names = |is_wanted: fn(bool, bool) -> bool| {
            let wanted =
                fields.iter().filter(|(_, is_upgraded, is_written)| is_wanted(*is_upgraded, *is_written));
            wanted.map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
        };
        let groups = [
            (format!("from upgrades[{row}] of the settings"), names(|is_upgraded, _| is_upgraded)),
            ("from the rule".to_owned(), names(|is_upgraded, is_written| !is_upgraded && is_written)),
            ("by default".to_owned(), names(|is_upgraded, is_written| !is_upgraded && !is_written)),
        ];
        let told = groups.iter().filter(|(_, names)| !names.is_empty());
        told.map(|(source, names)| format!("{source}: {names}")).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_has_stars_for_any_text() {
        let table = [
            ("*", "", true),
            ("default/*", "default/eg/http", true),
            ("default/*", "other/eg/http", false),
            ("*rule-0-*", "httproute.rule-0-path", true),
            ("free", "free", true),
            ("free", "freer", false),
            ("", "", true),
            ("", "x", false),
        ];
        for (glob, text, expected) in table {
            assert_eq!(Glob::new(glob).matches(text), expected, "{glob} and {text}");
        }
    }
}
