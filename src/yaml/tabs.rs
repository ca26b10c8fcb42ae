//! Tabs that part a key from its value, in a text that the parser would not take because of them.

use saphyr_parser::Span;

/// Where spaces stand for tabs, in characters from the start of the text.
#[derive(Default)]
pub(super) struct Tabs {
    places: Vec<usize>,
    /// How many of them the scalars have passed.
    passed: usize,
}

impl Tabs {
    /// Whether one of them is part of the scalar at `span`: then it must not become a space. To be asked of one scalar
    /// after the other.
    pub fn are_within(&mut self, span: Span) -> bool {
        let ahead = &self.places[self.passed..];
        self.passed += ahead.iter().take_while(|&&place| place < span.start.index()).count();
        self.places.get(self.passed).is_some_and(|&place| place < span.end.index())
    }
}

#[cfg(test)]
impl Tabs {
    /// Where each row of them ends.
    pub fn ends(&self) -> impl DoubleEndedIterator<Item = usize> {
        let next = |place: &usize| self.places.binary_search(&(place + 1)).is_ok();
        self.places.iter().filter(move |place| !next(place)).map(|place| place + 1)
    }
}

/// `text` with spaces for the tabs that directly follow a key's colon, and where these were. Lines and columns stay. A
/// colon with nothing before it may open a map in the same line, which a tab must not indent.
pub(super) fn spaced(text: &str) -> (String, Tabs) {
    let mut spaced = String::with_capacity(text.len());
    let mut places = Vec::new();
    let mut follows_colon = false;
    let mut before = ' ';
    for (place, c) in text.chars().enumerate() {
        follows_colon = (c == ':' && !before.is_whitespace()) || (follows_colon && c == '\t');
        before = c;
        if follows_colon && c == '\t' {
            places.push(place);
            spaced.push(' ');
        } else {
            spaced.push(c);
        }
    }
    (spaced, Tabs { places, passed: 0 })
}
