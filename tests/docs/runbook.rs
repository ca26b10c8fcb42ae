//! The runbook: a section for each reason that `/readyz` reports, and each alert in its lists. Also the commands in
//! the tables of the other pages.

use ratelimitd::cli::{OF_RATELIMITCTL, OF_RATELIMITD};
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

#[test]
fn every_alert_is_in_the_list_above_its_section() {
    for heading in ["Alerts that page", "Alerts that open a ticket"] {
        let part = part(heading);
        let (list, _) = part.split_once("\n### ").expect("sections");
        let listed: Vec<_> = list.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
        let alerts: Vec<_> = sections(part).map(|(alert, _)| alert.to_lowercase()).collect();
        assert_eq!(listed, alerts, "{heading}");
    }
}

#[test]
fn every_command_is_in_the_tables_of_programs_and_of_exit_codes() {
    let exit_codes =
        include_str!("../../docs/operations.md").split("\n## Exit codes\n").nth(1).expect("a section");
    let (exit_codes, _) = exit_codes.split_once("\n## ").expect("the next section");
    for named in [OF_RATELIMITD, OF_RATELIMITCTL] {
        let row = |line: &&str| line.starts_with(&format!("| `{}` |", named.program));
        let row = include_str!("../../docs/install.md").lines().find(row).expect("a row");
        for command in named.commands.split(" ") {
            assert!(row.contains(&format!("`{command}`")), "docs/install.md lacks {command}: {row}");
            let start = format!("`{command}");
            let mut cells = exit_codes.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
            let is_described = cells.any(|cell| {
                let rest = cell.split(&start).skip(1);
                rest.into_iter().any(|rest| rest.starts_with(['`', ' ']))
            });
            assert!(is_described, "docs/operations.md lacks the exit codes of {command}");
        }
    }
}
