//! Finds the known name that a misspelled one was probably meant to be.

use strsim::osa_distance;

/// Returns the known name closest to `text`, differing by at most a third of its letters. Ignores case, `_`, `-` and
/// spaces. The first of several equally close names wins.
pub fn nearest_name<'n>(text: &str, known: &[&'n str]) -> Option<&'n str> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let text = letters(text);
    let length = |text: &str| text.chars().count();
    let most = (length(&text) / 3).max(1).min(length(&text).saturating_sub(1));
    let near = known.iter().filter_map(|name| {
        let letters = letters(name);
        // Skipped without a comparison if the lengths differ too much: a large file may have as many unknown keys as
        // lines.
        let may_be_near = length(&letters).abs_diff(length(&text)) <= most;
        let edits = may_be_near.then(|| osa_distance(&text, &letters)).filter(|edits| *edits <= most)?;
        Some((edits, *name))
    });
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// No known name is longer.
const MAX_BYTES: usize = 64;

/// The letters that all spellings of one name share.
pub(crate) fn letters(text: &str) -> String {
    text.chars().filter(|letter| !matches!(letter, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_differs_by_at_most_a_third() {
        let known = ["domain", "kind", "rate_limit", "rate_limits", "requests_per_unit", "by"];
        let table = [
            ("domian", Some("domain")),
            ("Domain", Some("domain")),
            ("kidn", Some("kind")),
            ("knd", Some("kind")),
            ("rate-limit", Some("rate_limit")),
            ("rateLimits", Some("rate_limits")),
            ("rate_limt", Some("rate_limit")),
            ("requests_per_minute", Some("requests_per_unit")),
            ("kindred", None),
            ("version", None),
            ("x", None),
            ("bye", Some("by")),
            ("", None),
            ("___", None),
        ];
        for (text, expected) in table {
            assert_eq!(nearest_name(text, &known), expected, "{text}");
        }
        assert_eq!(nearest_name("domian", &[]), None);
        assert_eq!(nearest_name(&"d".repeat(1 << 20), &known), None);
    }
}
