//! Wildcards in rule values: `*` stands for zero or more characters, anywhere, any number of times.

/// A pattern over the whole text `key_value`, as `envoyproxy/ratelimit` matches it: prefix, suffix, and the pieces
/// between them found leftmost in order. No regular expressions, so a match is linear in the text per piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    literal_len: usize,
}

impl Pattern {
    /// The pattern in `text`, or `None` where `text` has no `*`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let stars = text.matches('*').count();
        (stars > 0).then(|| Self { text: text.into(), literal_len: text.len() - stars })
    }

    /// As written in the rule file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether all of `candidate` is covered.
    #[must_use]
    pub fn matches(&self, candidate: &str) -> bool {
        // Prefix and suffix may not claim the same characters.
        if candidate.len() < self.literal_len {
            return false;
        }
        let (prefix, rest) = self.text.split_once('*').unwrap_or((&self.text, ""));
        let Some(mut open) = candidate.strip_prefix(prefix) else {
            return false;
        };
        let mut pieces = rest.split('*');
        let Some(suffix) = pieces.next_back() else {
            return false;
        };
        let Some(middle) = open.strip_suffix(suffix) else {
            return false;
        };
        open = middle;
        for piece in pieces {
            match open.find(piece) {
                Some(at) => open = &open[at + piece.len()..],
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
            ("foo*", "foo", true), // a star may stand for nothing
            ("foo*", "foobar", true),
            ("foo*", "xfoo", false),
            ("*", "", true),
            ("*bar", "foobar", true),
            ("*bar", "barfoo", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false), // prefix and suffix do not share a character
            ("ab*ba", "abba", true),
            ("a*bc*c", "abc", false), // leftmost pieces use the text up
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
