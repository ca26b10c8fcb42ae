//! The cases whose answers differ from those of the reference on purpose.

use super::case;

/// A case that differs.
pub struct Difference {
    pub case: &'static str,
    /// The id of the difference in docs/migrating.md.
    pub id: &'static str,
}

/// In the order of their names.
pub const DIFFERENCES: [Difference; 15] = [
    differs("collision-of-two-descriptors", "D5"),
    differs("composite-join-of-key-and-value", "D5"),
    differs("error-empty-domain", "D18"),
    differs("error-no-descriptors", "D18"),
    differs("json-400-not-json", "D20"),
    differs("json-400-service-errors", "D20"),
    differs("json-400-wrong-fields", "D20"),
    differs("json-methods-with-a-body", "D21"),
    differs("json-methods-without-a-body", "D20"),
    differs("json-number-spellings", "D20"),
    differs("metadata-with-detailed-metric", "D15"),
    differs("metadata-with-value-to-metric", "D15"),
    differs("no-configuration", "D9"),
    differs("override-zero-requests", "D8"),
    differs("stop-increment-of-its-own", "D4"),
];

const fn differs(case: &'static str, id: &'static str) -> Difference {
    Difference { case, id }
}

/// The number of list items and table rows of docs/migrating.md that begin with this id.
pub fn descriptions(id: &str) -> usize {
    let page = include_str!("../../../docs/migrating.md");
    let (item, row) = (format!("- **{id} "), format!("| {id} |"));
    page.lines().filter(|line| line.starts_with(&item) || line.starts_with(&row)).count()
}

#[test]
fn every_difference_is_a_case_and_has_its_line_in_the_documentation() {
    let cases = case::all();
    let mut names: Vec<_> = DIFFERENCES.iter().map(|difference| difference.case).collect();
    for difference in &DIFFERENCES {
        let Difference { case, id } = difference;
        assert_eq!(descriptions(id), 1, "{case}: docs/migrating.md describes {id} once");
        assert!(cases.iter().any(|case| case.name == difference.case), "{} is no case", difference.case);
    }
    names.dedup();
    assert!(names.len() == DIFFERENCES.len() && names.is_sorted(), "sorted, each case once");
}
