//! No rule file makes the loader panic, whatever bytes the file has.

use proptest::prelude::*;

use super::{REFERENCE, load_bytes, load_text};
use crate::support::process::Ratelimitd;
use crate::support::{http, properties, wait};

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
fn metadata_deeper_than_decoders_of_answers_accept_is_an_error() {
    let nested = |levels: usize, open: &str, close: &str| {
        let value = format!("{}1{}", open.repeat(levels - 1), close.repeat(levels - 1));
        format!(
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {{ unit: day, requests_per_unit: 1 }}\n    \
             metadata: {{ m: {value} }}\n"
        )
    };
    for (open, close) in [("{ m: ", " }"), ("[", "]")] {
        assert!(load_text(&nested(16, open, close)).is_ok());
        let problems = load_text(&nested(17, open, close)).expect_err("too deep");
        let reason = &problems.all()[0].reason;
        assert_eq!(reason, "error parsing metadata: maps and lists may not nest deeper than 16 levels");
    }
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

const EIGHT_MIB: usize = 8 << 20;

/// `line` repeated up to 8 MiB.
fn large_file(line: &str) -> String {
    line.repeat(EIGHT_MIB / line.len())
}

#[test]
fn a_large_file_of_the_wrong_kind_has_one_short_message() {
    let too_many = "error loading config file: the document has more than 400000 keys and values";
    let table = [
        // the file, the beginning of the first problem
        (large_file("- x\n"), too_many),
        (large_file("- {}\n"), too_many),
        (large_file("name: x\n"), too_many),
        ((0..700_000).map(|key| format!("{key}: v\n")).collect(), too_many),
        (large_file("x"), "error loading config file: expected a map, found text 'xxxx"),
        (
            format!("[{}", large_file("[],")),
            "error loading config file: a list or map in brackets is too long",
        ),
        (large_file("\0"), "error loading config file: control characters are not allowed (U+0000)"),
    ];
    for (text, expected) in table {
        assert!(text.len() <= EIGHT_MIB);
        let problems = load_text(&text).expect_err("refused");
        assert_eq!(problems.errors(), 1, "{}", &text[..20]);
        assert!(problems.all()[0].reason.starts_with(expected), "{problems}");
        assert!(problems.to_string().len() < 250, "{problems}");
    }
}

#[test]
fn a_file_with_many_problems_lists_a_hundred_and_counts_the_others() {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    text.extend((0..50_000).map(|key| format!("  - {{ key: k{key}, valeu: x }}\n")));
    let problems = load_text(&text).expect_err("unknown keys");
    assert_eq!((problems.errors(), problems.warnings()), (50_000, 0));
    assert_eq!(problems.all().len(), 101);
    let text = problems.to_string();
    assert!(text.ends_with("rules.yaml: and 49900 more errors and 0 more warnings in this file"), "{text}");
    assert!(text.len() < 20_000);
}

#[test]
fn names_of_rules_that_repeat_a_long_domain_are_bounded() {
    let rule = |key| format!("  - {{ key: k{key}, rate_limit: {{ unit: minute, requests_per_unit: 1 }} }}\n");
    let rules: String = (0..30_000).map(rule).collect();
    let text = |domain_bytes: usize| format!("domain: {}\ndescriptors:\n{rules}", "d".repeat(domain_bytes));
    assert!(load_text(&text(1_000)).is_ok());
    let problems = load_text(&text(1 << 20)).expect_err("30 GiB of names");
    assert_eq!(problems.errors(), 1);
    let expected =
        "the paths of the descriptors, such as domain.key_value.key_value, have more than 33554432 bytes";
    assert!(problems.all()[0].reason.starts_with(expected), "{problems}");
}

#[test]
fn a_running_service_refuses_a_large_file_of_the_wrong_kind_within_its_memory() {
    let service = Ratelimitd::start("domain: d\ndescriptors: [{ key: a }]\n");
    let refused = || service.log().matches("cannot load changed rules").count();
    let pairs = |text: &str| {
        let rules = text.repeat(60_000);
        format!("domain: d\ndescriptors:\n{rules}")
    };
    for (index, text) in [large_file("- x\n"), pairs("- { kye: a }\n")].iter().enumerate() {
        std::fs::write(service.rules().join("list.yaml"), text).expect("a file");
        wait::expect("the file is refused", || refused() > index);
    }
    assert!(service.log().len() < 50_000, "{} bytes", service.log().len());
    let page = http::get(service.admin_port(), "/rules", &[]).expect("an answer").body;
    assert!(page.len() < 50_000, "{} bytes", page.len());
    let peak_kib = service.peak_memory_kib();
    assert!(peak_kib < 200 << 10, "{peak_kib} KiB");
}
