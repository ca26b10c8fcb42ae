//! The numbers and conditions that the Lua files name. They are written into the text, because each call would define
//! them again: a variable of the script costs a call more than a number, and most if a function uses it.

use super::layout::{
    ALIKE, ChargeMode, EQUAL, FEATURE_EQUAL, FEATURE_KEYS_REPEAT, FEATURE_ONE_BY_ONE, FEATURE_RESET,
    FEATURE_SEVERAL, GRANT, KernelLayout, RESET, ROLE_ENFORCE, ROLE_NON_BINDING, ROLE_QUOTA, SEVERAL,
};

/// Up to here all whole numbers are doubles.
const EXACT: u64 = 1 << 53;
/// Keys in one MGET. The Lua stack holds 8,000 values.
const KEYS_AT_ONCE: u64 = 4_000;
/// Expiry times are rounded up to whole seconds, in microseconds. The expiry of a counter in use then seldom changes,
/// and SETRANGE costs Redis a third less than PSETEX.
const EXPIRY_STEP: u64 = 1_000_000;

/// The text with numbers and conditions in the place of their names, and without comments. Its lines are those of the
/// files.
pub(super) fn with_constants(text: &str) -> String {
    let constants = constants();
    let mut written = String::with_capacity(text.len());
    for line in text.lines() {
        let code = line.split_once("--").map_or(line, |(code, _comment)| code);
        let mut rest = code;
        while let Some(start) = rest.find(is_part_of_name) {
            let name = &rest[start..];
            let name = &name[..name.find(|symbol| !is_part_of_name(symbol)).unwrap_or(name.len())];
            written.push_str(&rest[..start]);
            match constants.iter().find(|(constant, _)| constant == name) {
                Some((_, value)) => written.push_str(value),
                None => written.push_str(name),
            }
            rest = &rest[start + name.len()..];
        }
        written.push_str(rest);
        written.push('\n');
    }
    written
}

fn is_part_of_name(symbol: char) -> bool {
    symbol.is_ascii_alphanumeric() || symbol == '_'
}

/// The names and their values.
fn constants() -> Vec<(String, String)> {
    let numbers = [
        ("EXACT", EXACT),
        ("KEYS_AT_ONCE", KEYS_AT_ONCE),
        ("EXPIRY_STEP", EXPIRY_STEP),
        ("SEVERAL", SEVERAL.into()),
        ("RESET", RESET.into()),
        ("GRANT", GRANT.into()),
        ("EQUAL", EQUAL.into()),
        ("ALIKE", ALIKE.into()),
        ("PEEK", ChargeMode::Peek as u64),
        ("TAKE", ChargeMode::Take as u64),
        ("RECORD", ChargeMode::Record as u64),
        ("REFUND", ChargeMode::Refund as u64),
        ("REFUND_RECORDED", ChargeMode::RefundRecorded as u64),
        ("UNDO", ChargeMode::Undo as u64),
        ("ENFORCE", ROLE_ENFORCE.into()),
        ("NON_BINDING", ROLE_NON_BINDING.into()),
        ("QUOTA", ROLE_QUOTA.into()),
    ];
    let features = [
        ("NEEDS_SEVERAL", FEATURE_SEVERAL),
        ("NEEDS_RESET", FEATURE_RESET),
        ("NEEDS_EQUAL", FEATURE_EQUAL),
        ("NEEDS_ONE_BY_ONE", FEATURE_ONE_BY_ONE),
        ("HAS_REPEATED_KEYS", FEATURE_KEYS_REPEAT),
    ];
    let kernels = KernelLayout::all().iter().flat_map(|kernel| {
        let name = kernel.name.to_uppercase();
        [(format!("NEEDS_{name}"), condition(kernel.feature())), (name, kernel.number.to_string())]
    });
    let numbers = numbers.map(|(name, number)| (name.to_owned(), number.to_string()));
    let features = features.map(|(name, bit)| (name.to_owned(), condition(bit)));
    numbers.into_iter().chain(features).chain(kernels).collect()
}

/// Whether the features of a call have this bit.
fn condition(bit: u16) -> String {
    format!("(FEATURES % {} >= {bit})", 2 * u32::from(bit))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::redis::script::TEXT;

    #[test]
    fn whole_names_are_replaced_and_comments_left_out() {
        let text = "if mode == RECORD then -- RECORD\n  call('DEL', RECORD_1, GCRA)\n\nend";
        let expected = "if mode == 2 then \n  call('DEL', RECORD_1, 5)\n\nend\n";
        assert_eq!(with_constants(text), expected);
        assert_eq!(with_constants("if NEEDS_GCRA then"), "if (FEATURES % 128 >= 64) then\n");
    }

    #[test]
    fn every_other_name_in_capitals_is_a_variable() {
        let names = |text: &'static str| {
            let names = text.split(|symbol| !is_part_of_name(symbol)).filter(|name| !name.is_empty());
            names.filter(|name| !name.contains(|symbol: char| symbol.is_ascii_lowercase() || symbol == '%'))
        };
        let without_strings = |line: &'static str| line.split('\'').step_by(2);
        let defined = |line: &'static str| line.trim_start().strip_prefix("local ")?.split('=').next();
        let variables: HashSet<&str> = TEXT.lines().filter_map(defined).flat_map(names).collect();
        let is_number = |name: &&str| name.starts_with(|symbol: char| symbol.is_ascii_digit());
        for name in TEXT.lines().flat_map(without_strings).flat_map(names).filter(|name| !is_number(name)) {
            assert!(variables.contains(name) || name == "_" || name == "ARGV", "{name} has no value");
        }
    }
}
