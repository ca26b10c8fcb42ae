//! The index of the decisions: a row for each page, with the title, the status and the date that the page has, and for
//! each number of a page that is gone.

use std::fs;
use std::path::Path;

use super::pages::ROOT;

/// The row of the index for a page of this file name and text.
fn row(file: &str, text: &str) -> Option<String> {
    let mut lines = text.lines();
    let (number, title) = lines.next()?.strip_prefix("# ")?.split_once(". ")?;
    let status = lines.nth(1)?.strip_prefix("Status: ")?;
    let (status, date) = status.split_once(". Date: ")?;
    let is_named = file.starts_with(&format!("{number:0>4}-"));
    is_named.then(|| format!("| [{number}]({file}) | {title} | {status} | {} |", date.trim_end_matches('.')))
}

#[test]
fn the_index_has_a_row_for_each_decision() {
    let folder = Path::new(ROOT).join("docs/decisions");
    let index = fs::read_to_string(folder.join("README.md")).expect("the index");
    let rows: Vec<_> = index.lines().skip_while(|line| !line.starts_with("|--:")).skip(1).collect();
    for entry in fs::read_dir(&folder).expect("a readable folder") {
        let name = entry.expect("a readable entry").file_name().into_string().expect("UTF-8");
        let text = fs::read_to_string(folder.join(&name)).expect("a page");
        if name != "README.md" {
            let row = row(&name, &text)
                .unwrap_or_else(|| panic!("{name}: no title with its number, status and date"));
            assert!(rows.contains(&row.as_str()), "docs/decisions/README.md has no row\n{row}");
        }
    }
    for (number, row) in (1..).zip(&rows) {
        let starts = [format!("| {number} |"), format!("| [{number}]({number:0>4}-")];
        assert!(starts.iter().any(|start| row.starts_with(start)), "not the row of number {number}: {row}");
    }
}

#[test]
fn a_row_is_made_of_title_status_and_date() {
    let text = "# 4. A title\n\nStatus: superseded by [9](9.md). Date: 2026-11-21.\n\nText.\n";
    let expected = "| [4](0004-a.md) | A title | superseded by [9](9.md) | 2026-11-21 |";
    assert_eq!(row("0004-a.md", text).as_deref(), Some(expected));
    assert_eq!(row("0005-a.md", text), None);
    assert_eq!(row("0004-a.md", "# 4. A title\n\nText.\n"), None);
}
