//! Live exceptions, which are set while the process runs: how many there are, and how old they are.

use base::with_commas;
use serde::{Deserialize, Serialize};

use crate::live::LiveView;

/// Active live exceptions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct LiveObserved {
    /// Such as `3 live exceptions: 1 block, 2 multipliers; 14 bans`; empty if there are none.
    pub text: String,
    /// `redis`, or `process` if only this process stores them.
    pub source: String,
    /// Seconds since Redis sent what changed; `None` before the first time.
    pub age_s: Option<f64>,
    /// Of the newest change.
    pub version: String,
    /// Rows by what they change: `block`, `exempt` and so on. A row that changes several things counts for each.
    pub kinds: Vec<(String, u64)>,
    /// Rows by who set them: `operator`, `grant`, `penalty` or `feedback`.
    pub origins: Vec<(String, u64)>,
}

impl LiveObserved {
    /// `None` if no exception can be set.
    pub fn new(view: &LiveView) -> Option<Self> {
        let [kinds, origins] = view.counts();
        Some(Self {
            text: in_words(&kinds, &origins),
            source: view.source?.to_owned(),
            age_s: view.age_us.map(|us| us as f64 / 1e6),
            version: view.version.to_string(),
            kinds,
            origins,
        })
    }

    pub fn rows(&self) -> u64 {
        self.origins.iter().map(|(_, rows)| rows).sum()
    }
}

fn in_words(kinds: &[(String, u64)], origins: &[(String, u64)]) -> String {
    // The service itself sets these, and all of them block.
    let automatic = [("ban", "penalty"), ("pause", "feedback")].map(|(noun, origin)| {
        (noun, origins.iter().find(|(known, _)| known == origin).map_or(0, |(_, rows)| *rows))
    });
    let paused: u64 = automatic.iter().map(|(_, rows)| rows).sum();
    let set = origins.iter().map(|(_, rows)| rows).sum::<u64>() - paused;
    let kinds = kinds.iter().map(|(kind, rows)| match kind.as_str() {
        "block" => ("block", rows.saturating_sub(paused)),
        "add" => ("grant", *rows),
        "exempt" => ("exemption", *rows),
        kind => (kind, *rows),
    });
    let mut parts = words(automatic);
    if set > 0 {
        parts.insert(0, format!("{}: {}", counted(set, "live exception"), words(kinds).join(", ")));
    }
    parts.join("; ")
}

fn words<'n>(counts: impl IntoIterator<Item = (&'n str, u64)>) -> Vec<String> {
    let some = counts.into_iter().filter(|(_, rows)| *rows > 0);
    some.map(|(noun, rows)| counted(rows, noun)).collect()
}

pub(super) fn counted(rows: u64, noun: &str) -> String {
    let plural = if rows == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", with_commas(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_in_words() {
        let counts = |counts: &[(&str, u64)]| {
            counts.iter().map(|(name, rows)| ((*name).to_owned(), *rows)).collect::<Vec<_>>()
        };
        let said = |kinds, origins| in_words(&counts(kinds), &counts(origins));
        assert_eq!(said(&[], &[]), "");
        let all = said(&[("block", 15), ("multiplier", 2)], &[("operator", 3), ("penalty", 14)]);
        assert_eq!(all, "3 live exceptions: 1 block, 2 multipliers; 14 bans");
        assert_eq!(said(&[("block", 1_001)], &[("penalty", 1_000), ("feedback", 1)]), "1,000 bans; 1 pause");
        let set = said(&[("exempt", 2), ("limit", 1), ("add", 1)], &[("grant", 1), ("operator", 3)]);
        assert_eq!(set, "4 live exceptions: 2 exemptions, 1 limit, 1 grant");
    }
}
