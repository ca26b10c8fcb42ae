//! Two sentences for a person.

use crate::report::{Report, percent};

/// What is denied, and whom it hits.
pub(super) fn verdict(report: &Report) -> String {
    let totals = &report.totals;
    if totals.requests == 0 {
        return "No line of the log became a request. `--explain-line 1` shows what a line becomes."
            .to_owned();
    }
    let share = percent(totals.denied_share_ppm);
    let rules = match report.method.sample.one_in {
        1 => "The rules".to_owned(),
        one_in => format!("In a sample of 1/{one_in} of the keys the rules"),
    };
    let mut text = format!("{rules} deny {} of {} requests ({share} %)", totals.denied, totals.requests);
    if let Some(comparison) = &report.comparison {
        let old = percent(comparison.old_denied_share_ppm);
        text += &format!("; the rules in force deny {} ({old} %)", comparison.old_denied);
    }
    text += ". ";
    text += &match &report.comparison {
        Some(comparison) => {
            let (new, freed) = (comparison.keys_newly_over, comparison.keys_freed);
            format!("Keys newly over a limit: {new}; no longer over one: {freed}")
        }
        None => format!("Keys over a limit: {} of {}", totals.keys_denied, totals.keys),
    };
    if let (Some(denied), Some(share)) = (totals.good_denied, totals.good_denied_share_ppm) {
        text += &format!("; good requests denied: {denied} ({} % of the good ones)", percent(share));
    }
    text + "."
}
