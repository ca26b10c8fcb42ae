//! Wildcards in rule values: each `*` matches zero or more characters.

use std::ops::Range;

/// A pattern over the whole text `key_value`, matched as `envoyproxy/ratelimit` does: prefix, suffix, and the pieces
/// between them, each at its leftmost position after the piece before. A match is linear in the text per piece;
/// `Wildcards` matches many patterns at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    literal_len: usize,
    prefix_len: usize,
    suffix_len: usize,
}

impl Pattern {
    /// The pattern `text`; `None` if `text` has no `*`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let (prefix_len, last) = (text.find('*')?, text.rfind('*')?);
        Some(Self {
            text: text.into(),
            literal_len: text.len() - text.matches('*').count(),
            prefix_len,
            suffix_len: text.len() - last - 1,
        })
    }

    /// The pattern as written in the rule file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches all of `candidate`.
    #[must_use]
    pub fn matches(&self, candidate: &str) -> bool {
        let Some(between) = self.between(candidate) else {
            return false;
        };
        let mut rest = &candidate[between];
        self.pieces().all(|piece| match rest.find(piece) {
            Some(start) => {
                rest = &rest[start + piece.len()..];
                true
            }
            None => false,
        })
    }

    /// The range of `candidate` that the pieces have to match: what is left without prefix and suffix. `None` if
    /// `candidate` does not begin and end so, or is too short for all pieces.
    pub(super) fn between(&self, candidate: &str) -> Option<Range<usize>> {
        // Prefix and suffix must not overlap.
        let is_long_enough = candidate.len() >= self.literal_len;
        let (prefix, suffix) =
            (&self.text[..self.prefix_len], &self.text[self.text.len() - self.suffix_len..]);
        let fits = is_long_enough && candidate.starts_with(prefix) && candidate.ends_with(suffix);
        fits.then(|| self.prefix_len..candidate.len() - self.suffix_len)
    }

    /// The texts between stars, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &str> {
        let inner = &self.text[self.prefix_len..self.text.len() - self.suffix_len];
        inner.split('*').filter(|piece| !piece.is_empty())
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
