//! No rule file makes the loader panic, whatever bytes the file has.

use proptest::prelude::*;

use super::{REFERENCE, load_bytes, load_text};
use crate::support::properties;

/// Pieces of rule files and of YAML, joined at random.
const PIECES: [&str; 40] = [
    "domain: d\n",
    "descriptors:\n",
    "  - key: a\n",
    "    value: b*\n",
    "    rate_limit:\n",
    "      unit: minute\n",
    "      requests_per_unit: 5\n",
    "    rate_limits: [",
    "{",
    "}",
    "]",
    ",",
    "algorithm: gcra",
    "<<: *a",
    "&a ",
    "*a",
    "- ",
    "? ",
    ": ",
    "|\n",
    ">-\n",
    "'",
    "\"",
    "# x\n",
    "---\n",
    "...\n",
    "%TAG ! x\n",
    "!!str ",
    "!!int ",
    "\t",
    "    ",
    "\n",
    "~",
    "é",
    "\u{10FFFF}",
    "\u{FEFF}",
    "\0",
    "\\x",
    "replaces: [{name: x}]",
    "metadata: {a: [1, .nan]}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..properties::config(file!()) })]

    #[test]
    fn the_loader_does_not_panic_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = load_bytes(&bytes, REFERENCE);
    }

    #[test]
    fn the_loader_does_not_panic_on_pieces_of_yaml(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        if let Err(problems) = load_text(&text) {
            prop_assert!(problems.has_errors());
        }
    }

    #[test]
    fn a_truncated_file_loads_or_has_errors(cut in 0usize..2000) {
        let text = include_str!("../../../config/rules/edge.yaml");
        let text: String = text.chars().take(cut).collect();
        if let Err(problems) = load_text(&text) {
            prop_assert!(problems.has_errors() && !problems.to_string().is_empty());
        }
    }
}

#[test]
fn descriptors_can_nest_about_fifty_levels_deep() {
    let nested = |levels: usize| {
        let mut text = "domain: d\n".to_owned();
        for level in 0..levels {
            let indent = "  ".repeat(level);
            text += &format!("{indent}descriptors:\n{indent}- key: k\n");
        }
        let indent = "  ".repeat(levels);
        text + &format!("{indent}rate_limit: {{ unit: minute, requests_per_unit: 1 }}\n")
    };
    assert!(load_text(&nested(49)).is_ok());
    let problems = load_text(&nested(60)).expect_err("too deep");
    let reason = &problems.all()[0].reason;
    assert_eq!(reason, "error loading config file: lists and maps may not nest deeper than 100 levels");
}

#[test]
fn a_level_of_ten_thousand_wildcards_is_loaded() {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for index in 0..10_000 {
        text += &format!(
            "  - {{ key: k, value: v{index}*x, rate_limit: {{ unit: minute, requests_per_unit: 1 }} }}\n"
        );
    }
    let loaded = load_text(&text).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.rules.rules().len(), 10_000);
}
