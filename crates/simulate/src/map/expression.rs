//! The fields that a map uses, and conditions on a line: `code < 400 and not flags has RL`.

use crate::log::Selected;

/// A field of the log, by its position in [`FieldUses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldIndex(pub usize);

/// The names of the fields that a map uses, each with the line of the map on which it is first used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldUses(Vec<(String, u32)>);

impl FieldUses {
    pub fn index(&mut self, name: &str, line: u32) -> FieldIndex {
        let position = self.0.iter().position(|(known, _)| known == name);
        FieldIndex(position.unwrap_or_else(|| {
            self.0.push((name.to_owned(), line));
            self.0.len() - 1
        }))
    }

    /// A field that is used.
    pub fn find(&self, name: &str) -> Option<FieldIndex> {
        self.0.iter().position(|(known, _)| known == name).map(FieldIndex)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The name of the field at this position, and the line of its first use.
    pub fn get(&self, index: usize) -> Option<(&str, u32)> {
        self.0.get(index).map(|(name, line)| (name.as_str(), *line))
    }
}

/// A condition. A comparison with a field that the line does not have is false; `!=` is then true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Or(Vec<Self>),
    And(Vec<Self>),
    Not(Box<Self>),
    /// The field has this text, or not.
    Text(FieldIndex, TextTest, String),
    /// The field is a whole number, or begins with one, in this relation to the number.
    Number(FieldIndex, NumberTest, u64),
    /// The line has the field.
    Present(FieldIndex),
}

/// How a text is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextTest {
    Equal,
    NotEqual,
    StartsWith,
    EndsWith,
    Contains,
    /// One of the values of a list that commas separate.
    Has,
}

/// How a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberTest {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Expression {
    pub fn holds(&self, line: &Selected<'_>) -> bool {
        let value = |field: &FieldIndex| line[field.0].as_deref();
        match self {
            Self::Or(parts) => parts.iter().any(|part| part.holds(line)),
            Self::And(parts) => parts.iter().all(|part| part.holds(line)),
            Self::Not(part) => !part.holds(line),
            Self::Present(field) => value(field).is_some(),
            Self::Text(field, test, text) => match value(field) {
                Some(value) => test.holds(value, text),
                None => *test == TextTest::NotEqual,
            },
            Self::Number(field, test, number) => match value(field).and_then(whole_number) {
                Some(value) => test.holds(value, *number),
                None => *test == NumberTest::NotEqual,
            },
        }
    }
}

impl Expression {
    /// Whether it holds only for lines that have this field.
    pub fn needs(&self, field: FieldIndex) -> bool {
        match self {
            Self::Or(parts) => parts.iter().all(|part| part.needs(field)),
            Self::And(parts) => parts.iter().any(|part| part.needs(field)),
            Self::Not(_) => false,
            Self::Text(of, test, _) => *of == field && *test != TextTest::NotEqual,
            Self::Number(of, test, _) => *of == field && *test != NumberTest::NotEqual,
            Self::Present(of) => *of == field,
        }
    }
}

impl TextTest {
    fn holds(self, value: &str, text: &str) -> bool {
        match self {
            Self::Equal => value == text,
            Self::NotEqual => value != text,
            Self::StartsWith => value.starts_with(text),
            Self::EndsWith => value.ends_with(text),
            Self::Contains => value.contains(text),
            Self::Has => value.split(',').any(|part| part.trim() == text),
        }
    }
}

impl NumberTest {
    fn holds(self, value: u64, number: u64) -> bool {
        match self {
            Self::Equal => value == number,
            Self::NotEqual => value != number,
            Self::Less => value < number,
            Self::LessOrEqual => value <= number,
            Self::Greater => value > number,
            Self::GreaterOrEqual => value >= number,
        }
    }
}

/// A whole number; the decimals of `12.5` are cut off.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    whole.parse().ok()
}
