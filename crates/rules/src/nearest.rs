//! The known name that a misspelt one was probably meant to be.

/// The known name that differs least from `text`, by at most a third of its letters. Case, `_`, `-` and spaces do not
/// count. If several names differ by the same number of letters, the first of them is taken.
#[must_use]
pub fn nearest_name<'n>(text: &str, known: &[&'n str]) -> Option<&'n str> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let text = letters(text);
    let most = (text.len() / 3).max(1).min(text.len().saturating_sub(1));
    let near = known.iter().filter_map(|name| {
        let letters = letters(name);
        // Names of another length need no comparison: a large file may have as many unknown keys as lines.
        let may_be_near = letters.len().abs_diff(text.len()) <= most;
        let edits = may_be_near.then(|| edits(&text, &letters)).filter(|edits| *edits <= most)?;
        Some((edits, *name))
    });
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// No known name is longer.
const MAX_BYTES: usize = 64;

/// The letters that different spellings of one name have in common.
pub(crate) fn letters(text: &str) -> Vec<char> {
    text.chars().filter(|letter| !matches!(letter, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// The number of letters to insert, remove, replace, or exchange with the next one that makes one text of the other
/// (optimal string alignment distance).
pub(crate) fn edits(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.iter().enumerate() {
        let mut row = vec![index + 1];
        for (place, other) in to.iter().enumerate() {
            let replaced = last[place] + usize::from(letter != other);
            let mut fewest = replaced.min(last[place + 1] + 1).min(row[place] + 1);
            if index > 0 && place > 0 && *letter == to[place - 1] && from[index - 1] == *other {
                fewest = fewest.min(before_last[place - 1] + 1);
            }
            row.push(fewest);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
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

    #[test]
    fn edits_are_counted() {
        let table = [
            ("", "", 0),
            ("", "abc", 3),
            ("kidn", "kind", 1),
            ("ab", "ba", 1),
            ("berlni", "berlin", 1),
            ("kitten", "sitting", 3),
        ];
        for (from, to, expected) in table {
            assert_eq!(edits(&letters(from), &letters(to)), expected, "{from} {to}");
            assert_eq!(edits(&letters(to), &letters(from)), expected, "{to} {from}");
        }
    }
}
