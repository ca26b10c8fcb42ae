//! The report as one HTML page that needs no network: pictures as SVG, numbers as JSON, one style sheet, one script.
//!
//! Knows the report only. The page forbids itself the network: its Content-Security-Policy allows nothing but its own
//! style sheet and script, by their digests.

mod chart;
mod data;
mod demand;
mod denied_keys;
mod distribution;
mod heat_map;
mod method;
mod over_time;
mod rule_section;
mod rule_table;
mod scale;
mod side_by_side;
mod text;
mod verdict;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use self::data::PageData;
pub use self::text::period;
use super::report::{LimitReport, Report};
use crate::markup::Markup;

/// The style sheet of colours, texts and tables: other pages of the service begin with it, too.
pub const BASE_STYLE: &str = include_str!("base.css");
const SKELETON: &str = include_str!("page.html");
const STYLE: &str = concat!(include_str!("base.css"), include_str!("page.css"));
const SCRIPT: &str = include_str!("page.js");

/// Rules with a section of their own: those with most requests over the limit. The page stays small enough for a
/// mail, and the table has all rules.
const DETAILED: usize = 20;

/// The page.
///
/// # Panics
///
/// If the skeleton does not have its places: a defect of the program.
#[must_use]
pub fn html(report: &Report) -> String {
    let places = places(&report.limits);
    let rules: Vec<&LimitReport> = report
        .limits
        .iter()
        .zip(&places)
        .filter(|(_, place)| place.is_some())
        .map(|(rule, _)| rule)
        .collect();
    let data = PageData::new(report, &rules);
    let mut skeleton = SKELETON.split("<!-- place -->");
    let mut part = || skeleton.next().expect("the skeleton has five parts");
    let mut page = Markup::default();
    page.fill(part(), &[&digest(STYLE), &digest(SCRIPT)]).raw(STYLE).raw(part());
    page.append(&body(report, &places, (&rules, &data))).raw(part());
    page.json(&data).expect("numbers and texts").raw(part()).raw(SCRIPT).raw(part());
    page.into_text()
}

/// The place of each rule among those with a section.
fn places(rules: &[LimitReport]) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..rules.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse((rules[*index].over, rules[*index].asked)));
    order.truncate(DETAILED);
    order.sort_unstable();
    (0..rules.len()).map(|index| order.binary_search(&index).ok()).collect()
}

fn body(report: &Report, places: &[Option<usize>], (rules, data): (&[&LimitReport], &PageData)) -> Markup {
    let mut html = Markup::default();
    header(&mut html, report);
    html.append(&verdict::section(report, data));
    html.append(&rule_table::section(report, places));
    if rules.len() < report.limits.len() {
        html.fill("<p>Only the {} rules with most requests over the limit have pictures.</p>", &[&DETAILED]);
    }
    for (place, (rule, data)) in rules.iter().zip(data.rules()).enumerate() {
        html.append(&rule_section::section(place, rule, data));
    }
    html.append(&side_by_side::section(report, data));
    html.append(&denied_keys::section(report));
    html.append(&method::section(report));
    html
}

fn header(html: &mut Markup, report: &Report) {
    html.raw("<header><h1>What the rules would have done</h1>");
    if report.totals.requests > 0 {
        let totals = &report.totals;
        let logs: Vec<&str> = report.method.inputs.iter().map(|input| input.name.as_str()).collect();
        html.fill(
            "<p>{} to {} UTC · {}</p>",
            &[&text::time(totals.first_us), &text::time(totals.last_us), &logs.join(", ")],
        );
    }
    html.raw(r##"<nav aria-label="Sections"><a href="#verdict">Verdict</a><a href="#rules">Rules</a>"##);
    if !report.algorithms.is_empty() {
        html.raw(r##"<a href="#algorithms">Algorithms</a>"##);
    }
    html.raw(r##"<a href="#keys">Who</a><a href="#method">Method</a></nav></header>"##);
}

/// The SHA-256 of a style sheet or script, in the form in which a Content-Security-Policy has it.
#[must_use]
pub fn digest(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_sheet_and_script_cannot_end_their_elements() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
        // The parser of HTML changes CR LF, and the digests would differ.
        assert!(!STYLE.contains('\r') && !SCRIPT.contains('\r'));
    }

    #[test]
    fn an_empty_report_is_a_page() {
        let page = html(&Report::default());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
        assert!(
            page.contains("No request met a limit.") && page.contains("No key was over a limit."),
            "{page}"
        );
    }

    #[test]
    fn the_rules_with_most_denials_have_sections() {
        let rule = |over| LimitReport { over, asked: 1_000, ..LimitReport::default() };
        let rules: Vec<LimitReport> = (0..50).map(rule).collect();
        let places = places(&rules);
        assert_eq!(places.iter().flatten().count(), DETAILED);
        assert_eq!((places[29], places[30], places[49]), (None, Some(0), Some(19)));
    }
}
