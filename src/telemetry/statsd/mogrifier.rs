//! Mogrifiers rewrite the names of metrics for DogStatsD: parts of a name become tags. Like in envoyproxy/ratelimit,
//! the first mogrifier whose pattern is found anywhere in the name is applied.

use regex::{Captures, Regex};

/// Rewrites the names in which a pattern is found.
#[derive(Clone, Debug)]
pub struct Mogrifier {
    pub pattern: Regex,
    /// `$0` to `$9` stand for the groups of the pattern.
    pub name: String,
    /// Names and values; both may contain groups.
    pub tags: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default)]
pub struct Mogrifiers(pub Vec<Mogrifier>);

/// Mogrifiers are equal if their texts are.
impl PartialEq for Mogrifiers {
    fn eq(&self, other: &Self) -> bool {
        let texts = |all: &Self| -> Vec<_> {
            let text =
                |one: &Mogrifier| (one.pattern.as_str().to_owned(), one.name.clone(), one.tags.clone());
            all.0.iter().map(text).collect()
        };
        texts(self) == texts(other)
    }
}

impl Eq for Mogrifiers {}

/// A name with its tags.
pub(super) type Named = (String, Vec<(String, String)>);

impl Mogrifiers {
    pub(super) fn apply(&self, name: &str) -> Option<Named> {
        let (mogrifier, groups) = self.0.iter().find_map(|one| Some((one, one.pattern.captures(name)?)))?;
        let tags =
            mogrifier.tags.iter().map(|(tag, value)| (expanded(tag, &groups), expanded(value, &groups)));
        Some((expanded(&mogrifier.name, &groups), tags.collect()))
    }
}

/// Replaces `$0` to `$9` by the groups. A group that does not exist stays as it is spelt.
fn expanded(template: &str, groups: &Captures<'_>) -> String {
    let mut parts = template.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digit = part.chars().next().and_then(|first| first.to_digit(10));
        match digit.filter(|&digit| (digit as usize) < groups.len()) {
            Some(digit) => {
                text.push_str(groups.get(digit as usize).map_or("", |group| group.as_str()));
                text.push_str(&part[1..]);
            }
            None => {
                text.push('$');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(tags: &[(&str, &str)]) -> Vec<(String, String)> {
        tags.iter().map(|&(tag, value)| (tag.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn the_first_pattern_that_is_found_rewrites_the_name() {
        let mogrifier = |pattern, name: &str, tags: &[(&str, &str)]| Mogrifier {
            pattern: Regex::new(pattern).expect("valid"),
            name: name.to_owned(),
            tags: owned(tags),
        };
        let templates = [("first", "$1"), ("all", "$0"), ("none", "$9"), ("$2", "x")];
        let mogrifiers = Mogrifiers(vec![
            mogrifier(r"^a\.(\w+)\.(\w+)$", "new.$2", &templates),
            mogrifier("b", "$x$", &[]),
        ]);
        let tags = owned(&[("first", "b"), ("all", "a.b.c"), ("none", "$9"), ("c", "x")]);
        assert_eq!(mogrifiers.apply("a.b.c"), Some(("new.c".to_owned(), tags)));
        assert_eq!(mogrifiers.apply("cbc"), Some(("$x$".to_owned(), Vec::new())));
        assert_eq!(mogrifiers.apply("x.y"), None);
    }
}
