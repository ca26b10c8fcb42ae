//! Formats how an applied limit came from the limit of a rule, without values of the request: `60 -> tier pro 600
//! (tenants.csv:17) -> x2 = 1200 until 2026-12-01T00:00:00Z (incidents.yaml:3)`.

use std::fmt::Write as _;

use engine::{Change, ChangedBy, Derivation, DerivationStep};

use crate::exceptions::utc_text;

/// The steps from the rule's limit to the applied limit, in one line.
pub fn derivation_text(derivation: &Derivation) -> String {
    let mut text = derivation.from.to_string();
    for DerivationStep { change, by } in &derivation.steps {
        text.push_str(" -> ");
        text.push_str(&change_text(change));
        // Writing to a String cannot fail.
        let _ = match by {
            ChangedBy::Entry => write!(text, " (request)"),
            ChangedBy::Tier(tier) => write!(text, " ({})", tier.file),
            ChangedBy::Row(row) => match change.until_us(row) {
                Some(until_us) => write!(text, " until {} ({})", utc_text(until_us), row.source),
                None => write!(text, " ({})", row.source),
            },
        };
    }
    text
}

fn change_text(change: &Change) -> String {
    match change {
        Change::Blocked { .. } => "blocked".to_owned(),
        Change::Exempt => "exempt".to_owned(),
        Change::Tier(name, amount) => format!("tier {name} {amount}"),
        Change::UnknownTier(Some(name)) => format!("unknown tier {name}"),
        Change::UnknownTier(None) => "unknown tier".to_owned(),
        Change::Number(number) => format!("limit {number}"),
        Change::Multiplied(multiplier, number) => format!("x{multiplier} = {number}"),
        Change::Added { units, number, .. } => format!("+{units} = {number}"),
        Change::Shadow(true) => "shadow mode".to_owned(),
        Change::Shadow(false) => "no shadow mode".to_owned(),
        Change::Unfit(reason) => format!("not changed, because {reason}"),
    }
}

/// Why the exceptions of a derivation exist: a line for each with a reason or an author.
pub(super) fn reasons(derivation: &Derivation) -> impl Iterator<Item = String> {
    derivation.steps.iter().filter_map(|step| {
        let ChangedBy::Row(row) = &step.by else { return None };
        let parts = match (&row.reason, &row.by) {
            (Some(reason), Some(by)) => format!("{reason} (by {by})"),
            (Some(reason), None) => reason.to_string(),
            (None, Some(by)) => format!("by {by}"),
            (None, None) => return None,
        };
        Some(format!("{parts}, {}", row.source))
    })
}
