//! The runbook: a section for each reason that `/readyz` reports.

use ratelimitd::decide::NotReadyReason;

const PAGE: &str = include_str!("../../docs/runbook.md");

/// The part of the page below a heading with two `#`, and before the next one.
fn part(heading: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the part of the page");
    rest.split("\n## ").next().unwrap_or_default()
}

/// The headings of the sections in a part of the page, and their texts.
fn sections(part: &str) -> impl Iterator<Item = (&str, &str)> {
    part.split("\n### ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, "")))
}

#[test]
fn every_reason_of_readyz_has_a_section() {
    let described = sections(part("/readyz reasons")).map(|(heading, _)| heading.trim_matches('`'));
    let reasons = NotReadyReason::ALL.iter().map(|reason| reason.text());
    assert_eq!(described.collect::<Vec<_>>(), reasons.collect::<Vec<_>>());
}
