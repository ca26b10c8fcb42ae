//! Adds up lines by columns.

use std::collections::HashMap;
use std::error::Error;

use engine::Booking;
use ratelimitd::ledger::Line;

use super::selection::{Selection, Selector};

const NO_KEY: &str = "(no key)";

pub(super) struct Sums {
    by: Vec<String>,
    selector: Selector,
    rows: HashMap<Vec<String>, Row>,
}

#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) columns: Vec<String>,
    pub(super) sums: Booking,
    /// Time of the latest number of a limit, and the number.
    latest: (u64, u64),
    /// The limit of all lines; `None` before the first.
    limit: Option<(String, String)>,
    /// `true` if the lines are of several limits.
    is_mixed: bool,
}

impl Row {
    pub(super) fn used(&self) -> u64 {
        let Booking { units, back, policy, .. } = self.sums;
        units.saturating_sub(back).saturating_add(policy)
    }

    /// The limit's number at last; `None` for several limits, or without a key.
    pub(super) fn of(&self) -> Option<u64> {
        let (_, number) = self.latest;
        (!self.is_mixed && number > 0).then_some(number)
    }

    fn add(&mut self, line: &Line<'_>) {
        self.sums += line.sums();
        if !line.unattributed {
            self.latest = self.latest.max((line.at, line.of));
        }
        match &self.limit {
            None => self.limit = Some((line.domain.to_string(), line.rule.to_string())),
            Some((domain, rule)) => self.is_mixed |= *domain != line.domain || *rule != line.rule,
        }
    }
}

impl Sums {
    /// # Errors
    /// As of [`Selector::new`].
    pub(super) fn new(by: Vec<String>, selection: Selection) -> Result<Self, Box<dyn Error>> {
        Ok(Self { by, selector: Selector::new(selection)?, rows: HashMap::new() })
    }

    pub(super) fn titles(&self) -> Vec<String> {
        self.selector.selection.per.iter().chain(&self.by).cloned().collect()
    }

    pub(super) fn add(&mut self, line: &Line<'_>) {
        let Some(period) = self.selector.period(line) else { return };
        let period = Some(period).filter(|period| !period.is_empty()).map(str::to_owned);
        let columns = period.into_iter().chain(self.by.iter().map(|name| column(line, name).to_owned()));
        self.rows.entry(columns.collect()).or_default().add(line);
    }

    /// Returns the rows, ordered by their columns.
    pub(super) fn into_rows(self) -> Vec<Row> {
        let rows = self.rows.into_iter().map(|(columns, row)| Row { columns, ..row });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|one, other| one.columns.cmp(&other.columns));
        rows
    }
}

fn column<'l>(line: &'l Line<'_>, name: &str) -> &'l str {
    match name {
        "rule" => &line.rule,
        "domain" => &line.domain,
        "process" => &line.process,
        "mode" => mode_name(line),
        _ if line.unattributed => NO_KEY,
        _ => {
            let value = |entry: &'l str| entry.strip_prefix(name)?.strip_prefix('=');
            line.entries.iter().find_map(|entry| value(entry)).unwrap_or("-")
        }
    }
}

pub(super) fn mode_name<'l>(line: &'l Line<'_>) -> &'l str {
    if line.mode.is_empty() { "enforced" } else { &line.mode }
}
