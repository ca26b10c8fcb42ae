//! Finds a denied key's exception, so that the operator who added it can check that it works, and counts the exceptions
//! that block and exempt.

use std::collections::BTreeMap;

use engine::algorithm::Kernel;
use engine::{
    Caller, ChangedBy, Derivation, Descriptor, Effect, ExceptionKind, ExceptionRow, KeyText, LiveRows, Plan,
    Quantity, Request, RuleSet, parse_key,
};
use serde::{Deserialize, Serialize};

use crate::telemetry::metrics::DeniedCharge;

const MICROSECONDS: u64 = 1_000_000;
/// Label of limits that come with requests.
const OVERRIDE: &str = "override";

/// How an exception changes a key's limit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct KeyException {
    /// `block`, `exempt`, or what else the exception changes.
    pub kind: String,
    /// File name and line of the exception, or a live row's id; `None` if only its effect is known.
    pub row: Option<String>,
    /// End, seconds since the epoch.
    pub until: Option<u64>,
}

impl KeyException {
    pub(super) fn is_over(&self, end: u64) -> bool {
        self.until.is_some_and(|until| until <= end)
    }

    /// Returns how the exceptions valid at `end` change the limit with this label for a counter key.
    pub(super) fn find(rules: &RuleSet, key: &str, label: &str, end: u64) -> Option<Self> {
        rules.exceptions()?;
        let parsed = parse_key(key)?;
        let KeyText::Plain(domain) = &parsed.domain else { return None };
        let descriptor = Descriptor { entries: parsed.to_entries(), ..Descriptor::default() };
        let request = Request {
            domain: domain.clone(),
            hits_addend: 1,
            descriptors: vec![descriptor],
            caller: Caller::default(),
        };
        let plan = Plan::new(rules, &request, end.saturating_mul(MICROSECONDS)).ok()?;
        // An exception also blocks what has its own limit, or none.
        let is_of_limit = |derivation: &&Derivation| label == OVERRIDE || *derivation.label == *label;
        let derivation = plan.derivations().iter().find(is_of_limit)?;
        let of_row = derivation.steps.iter().rev().filter_map(|step| match &step.by {
            ChangedBy::Row(row) => Some((&step.change, row)),
            ChangedBy::Entry | ChangedBy::Tier(_) => None,
        });
        let mut changes = of_row.filter_map(|(change, row)| Some((change.kind()?, change, row)));
        // Plans assign a tier to many keys: during an incident that is not an exception.
        let (kind, change, row) = changes.find(|(kind, ..)| *kind != ExceptionKind::Tier)?;
        let until_us = change.until_us(row);
        let source = row.source.to_string();
        let place = source.rsplit('/').next().unwrap_or_default().to_owned();
        Some(Self { kind: kind.into_str().to_owned(), row: Some(place), until: until_us.map(seconds) })
    }

    /// Returns what the last denial reveals: that a value which only the request has is blocked.
    pub(super) fn of_denial(charge: &DeniedCharge) -> Option<Self> {
        let is_blocked_by_rule = matches!(charge.rule, Quantity::Limited(Kernel::Blocked(_)));
        let Kernel::Blocked(blocked) = charge.kernel else { return None };
        let until = blocked.until_us.map(seconds);
        let kind = ExceptionKind::Block.into_str().to_owned();
        (!is_blocked_by_rule).then_some(Self { kind, row: None, until })
    }
}

/// Counts the valid exceptions that block or exempt. They are read once; afterwards only their starts and ends matter.
#[derive(Debug, Default)]
pub(super) struct RowsInForce {
    now: RowCounts,
    /// Exceptions that start and that end, by the second in which they do.
    later: BTreeMap<u64, [RowCounts; 2]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowCounts {
    pub(super) block: usize,
    pub(super) exempt: usize,
}

impl RowsInForce {
    /// Counts a rule set's exceptions that are valid at `end`.
    pub(super) fn count(rules: &RuleSet, end: u64) -> Self {
        let mut found = Self::default();
        let of_files = rules.exceptions().into_iter().flat_map(|all| all.rows());
        let live = rules.live_rows().into_iter().flat_map(LiveRows::rows).map(AsRef::as_ref);
        for row in of_files.chain(live) {
            let ExceptionRow { from_us, until_us, .. } = row;
            let Effect { block, exempt, .. } = &row.effect;
            let (from, until) = (from_us.map_or(0, seconds), until_us.map(seconds));
            if (!block && !exempt) || until.is_some_and(|until| until <= from.max(end)) {
                continue;
            }
            for (turn, time) in [Some(from), until].into_iter().enumerate() {
                let Some(time) = time else { continue };
                let counts = &mut found.later.entry(time).or_default()[turn];
                counts.block += usize::from(*block);
                counts.exempt += usize::from(*exempt);
            }
        }
        found.advance(end);
        found
    }

    /// Adds the exceptions that started by `end`, and subtracts the ones that ended.
    pub(super) fn advance(&mut self, end: u64) {
        while let Some(first) = self.later.first_entry().filter(|first| *first.key() <= end) {
            let [started, ended] = first.remove();
            self.now.block = self.now.block + started.block - ended.block;
            self.now.exempt = self.now.exempt + started.exempt - ended.exempt;
        }
    }

    pub(super) fn now(&self) -> RowCounts {
        self.now
    }
}

fn seconds(us: u64) -> u64 {
    us.div_ceil(MICROSECONDS)
}
