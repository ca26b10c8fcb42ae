//! The cases whose answers differ from those of the reference on purpose.

use super::case;

/// A case that differs.
pub struct Difference {
    pub case: &'static str,
    /// A part of the one line of docs/migrating.md that describes the difference.
    pub line: &'static str,
}

/// In the order of their names.
pub const DIFFERENCES: [Difference; 15] = [
    differs("collision-of-two-descriptors", "parts of a counter's key are joined by `_`"),
    differs("composite-join-of-key-and-value", "parts of a counter's key are joined by `_`"),
    differs("error-empty-domain", "errors are gRPC `UNKNOWN`"),
    differs("error-no-descriptors", "errors are gRPC `UNKNOWN`"),
    differs("json-400-not-json", "`/json` answers `Bad Request` without a reason"),
    differs("json-400-service-errors", "`/json` answers `Bad Request` without a reason"),
    differs("json-400-wrong-fields", "`/json` answers `Bad Request` without a reason"),
    differs("json-methods-with-a-body", "`/json` takes any method with a body"),
    differs("json-methods-without-a-body", "`/json` answers `Bad Request` without a reason"),
    differs("json-number-spellings", "`/json` answers `Bad Request` without a reason"),
    differs("metadata-with-detailed-metric", "`detailed_metric`, `value_to_metric` put request values"),
    differs("metadata-with-value-to-metric", "`detailed_metric`, `value_to_metric` put request values"),
    differs("no-configuration", "a bad first rule file starts a server"),
    differs("override-zero-requests", "a limit of 0 has a counter"),
    differs(
        "stop-increment-of-its-own",
        "`STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT` still charges the counter that denies",
    ),
];

const fn differs(case: &'static str, line: &'static str) -> Difference {
    Difference { case, line }
}

#[test]
fn every_difference_is_a_case_and_has_its_line_in_the_documentation() {
    let page = include_str!("../../../docs/migrating.md");
    let cases = case::all();
    let mut names: Vec<_> = DIFFERENCES.iter().map(|difference| difference.case).collect();
    for difference in &DIFFERENCES {
        let lines = page.lines().filter(|line| line.contains(difference.line)).count();
        assert_eq!(
            lines, 1,
            "{}: docs/migrating.md has {lines} lines with {:?}",
            difference.case, difference.line
        );
        assert!(cases.iter().any(|case| case.name == difference.case), "{} is no case", difference.case);
    }
    names.dedup();
    assert!(names.len() == DIFFERENCES.len() && names.is_sorted(), "sorted, each case once");
}
