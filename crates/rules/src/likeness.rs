//! Whether a text of a file without the name of a rule file looks like rules. Mistakes in such a file are then errors,
//! not a reason to pass over its limits.

use super::encoding::decode;

/// The keys at the top of a rule file.
const KEYS: [&str; 2] = ["domain", "descriptors"];

/// Whether a line has one of the keys of a rule file before a colon, at its start or after an opening brace, quoted or
/// not. Prose has none, and YAML of another kind seldom.
pub(super) fn looks_like_rules(bytes: &[u8]) -> bool {
    let text = decode(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes));
    text.lines().any(|line| {
        let start = line.trim_start_matches(['{', ' ', '\t', '\u{feff}']);
        let is_top = line.len() - line.trim_start_matches([' ', '\t']).len() == 0 || line.contains('{');
        let quoted = start.starts_with(['"', '\'']);
        let key = start.trim_start_matches(['"', '\'']);
        is_top
            && KEYS.iter().any(|name| {
                key.strip_prefix(name).is_some_and(|rest| {
                    let rest = if quoted { rest.strip_prefix(['"', '\'']).unwrap_or("") } else { rest };
                    rest.trim_start().starts_with(':')
                })
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_known_by_a_key_at_the_top() {
        let rules = [
            "domain: a\n",
            "# a comment\ndescriptors:\n- key: k\ndomain: a\n",
            "domain : a",
            "\"domain\": a",
            "{\"domain\": \"a\"}",
            "{ domain: a, descriptors: [] }",
            "  { 'descriptors': [] }",
            "domain: a\ndescriptors: [",
            "\u{feff}domain: a",
            "domain:",
        ];
        for text in rules {
            assert!(looks_like_rules(text.as_bytes()), "{text:?}");
        }
        let others = [
            "",
            "hello",
            "# domain: a",
            "These are the rules of the domain: edge",
            "a: {b: c}",
            "  domain: nested",
            "domains: [a]",
            "domain",
            "\"domain: a",
        ];
        for text in others {
            assert!(!looks_like_rules(text.as_bytes()), "{text:?}");
        }
        assert!(!looks_like_rules(b"\xff\xfe\x00"));
        let utf16: Vec<u8> = "\u{feff}domain: a".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(looks_like_rules(&utf16));
    }
}
