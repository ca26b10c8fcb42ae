//! Wildcards in rule values: each `*` matches zero or more characters.

/// A pattern over the whole text `key_value`, matched as `envoyproxy/ratelimit` does: prefix, suffix, and the pieces
/// between them, each at its leftmost position after the piece before. A match is linear in the text per piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    literal_len: usize,
}

impl Pattern {
    /// The pattern `text`; `None` if `text` has no `*`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let stars = text.matches('*').count();
        (stars > 0).then(|| Self { text: text.into(), literal_len: text.len() - stars })
    }

    /// The pattern as written in the rule file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches all of `candidate`.
    #[must_use]
    pub fn matches(&self, candidate: &str) -> bool {
        // Prefix and suffix must not overlap.
        if candidate.len() < self.literal_len {
            return false;
        }
        let (prefix, rest) = self.text.split_once('*').unwrap_or((&self.text, ""));
        let Some(unmatched) = candidate.strip_prefix(prefix) else {
            return false;
        };
        let mut pieces = rest.split('*');
        let Some(suffix) = pieces.next_back() else {
            return false;
        };
        let Some(mut middle) = unmatched.strip_suffix(suffix) else {
            return false;
        };
        for piece in pieces {
            match middle.find(piece) {
                Some(start) => middle = &middle[start + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_whole_text() {
        let table = [
            // pattern, candidate, matches
            ("foo*", "foo", true), // a star matches the empty text
            ("foo*", "foobar", true),
            ("foo*", "xfoo", false),
            ("*", "", true),
            ("*bar", "foobar", true),
            ("*bar", "barfoo", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false), // prefix and suffix must not overlap
            ("ab*ba", "abba", true),
            ("a*bc*c", "abc", false), // the leftmost match leaves no room for the suffix
            ("a*b*b", "ab", false),
            ("**", "anything", true),
            ("pfad/*/ü*", "pfad/x/über", true),
        ];
        for (pattern, candidate, expected) in table {
            let compiled = Pattern::new(pattern).expect("has a star");
            assert_eq!(compiled.matches(candidate), expected, "{pattern} on {candidate}");
        }
        assert_eq!(Pattern::new("plain"), None);
    }
}
