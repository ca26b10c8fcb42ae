//! The fields that a map uses, and conditions on a line: `code < 400 and not flags has RL`.

use std::ops::{Bound, RangeBounds as _};

use crate::values::Selected;

/// The index of a field among those that a map uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldIndex(pub usize);

/// Names of the fields that a map uses, each with the line of the map that first uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldUses(Vec<(String, u32)>);

impl FieldUses {
    pub fn index(&mut self, name: &str, line: u32) -> FieldIndex {
        let position = self.0.iter().position(|(known, _)| known == name);
        FieldIndex(position.unwrap_or_else(|| {
            self.0.push((name.to_owned(), line));
            self.0.len() - 1
        }))
    }

    pub fn find(&self, name: &str) -> Option<FieldIndex> {
        self.0.iter().position(|(known, _)| known == name).map(FieldIndex)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Name of the field, and the line of its first use.
    pub fn get(&self, index: usize) -> Option<(&str, u32)> {
        self.0.get(index).map(|(name, line)| (name.as_str(), *line))
    }
}

/// A comparison with a missing field is false. `!=` is `Not` an equality, so it is then true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    Or(Vec<Self>),
    And(Vec<Self>),
    Not(Box<Self>),
    /// The field passes the test with this string.
    Text(FieldIndex, TextTest, String),
    /// The field is a number within these bounds.
    Number(FieldIndex, NumberBounds),
    /// The line has the field.
    Present(FieldIndex),
}

/// The lowest and highest number for which a comparison holds.
pub(crate) type NumberBounds = (Bound<Number>, Bound<Number>);

/// The whole part, and whether decimals make the number larger: conditions compare with whole numbers.
pub(crate) type Number = (u64, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    Equal,
    StartsWith,
    EndsWith,
    Contains,
    /// One of the values of a comma-separated list.
    Has,
}

impl Expression {
    /// Adds the fields that the condition uses.
    pub fn add_fields(&self, found: &mut Vec<FieldIndex>) {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().for_each(|part| part.add_fields(found)),
            Self::Not(part) => part.add_fields(found),
            Self::Text(field, ..) | Self::Number(field, ..) | Self::Present(field) => found.push(*field),
        }
    }

    pub fn holds(&self, line: &Selected<'_>) -> bool {
        self.may_be(true, &[line])
    }

    /// `true` if the condition may be `wanted` when each of its comparisons may use any of these readings of a line.
    pub fn may_be(&self, wanted: bool, readings: &[&Selected<'_>]) -> bool {
        match self {
            Self::Or(parts) | Self::And(parts) => {
                let mut parts = parts.iter().map(|part| part.may_be(wanted, readings));
                // One true part makes an `or` true, and one false part an `and` false.
                if matches!(self, Self::Or(_)) == wanted {
                    parts.any(|may_be| may_be)
                } else {
                    parts.all(|may_be| may_be)
                }
            }
            Self::Not(part) => part.may_be(!wanted, readings),
            Self::Text(field, test, text) => readings
                .iter()
                .any(|line| line[field.0].as_deref().is_some_and(|value| test.holds(value, text)) == wanted),
            Self::Number(field, bounds) => readings.iter().any(|line| {
                let value = line[field.0].as_deref().and_then(number);
                value.is_some_and(|value| bounds.contains(&value)) == wanted
            }),
            Self::Present(field) => readings.iter().any(|line| line[field.0].is_some() == wanted),
        }
    }

    /// `true` if the condition holds only for lines that have this field.
    pub fn needs(&self, field: FieldIndex) -> bool {
        match self {
            Self::Or(parts) => parts.iter().all(|part| part.needs(field)),
            Self::And(parts) => parts.iter().any(|part| part.needs(field)),
            Self::Not(_) => false,
            Self::Text(of, ..) | Self::Number(of, _) | Self::Present(of) => *of == field,
        }
    }
}

impl TextTest {
    fn holds(self, value: &str, text: &str) -> bool {
        match self {
            Self::Equal => value == text,
            Self::StartsWith => value.starts_with(text),
            Self::EndsWith => value.ends_with(text),
            Self::Contains => value.contains(text),
            Self::Has => value.split(',').any(|part| part.trim() == text),
        }
    }
}

/// `12`, or with decimals, `12.5`.
pub(crate) fn number(text: &str) -> Option<Number> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_decimal = !decimals.is_empty() && decimals.bytes().all(|digit| digit.is_ascii_digit());
    let whole = whole.parse().ok().filter(|_| is_decimal)?;
    Some((whole, decimals.bytes().any(|digit| digit != b'0')))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;

    const TESTS: [TextTest; 5] =
        [TextTest::Equal, TextTest::StartsWith, TextTest::EndsWith, TextTest::Contains, TextTest::Has];

    /// Conditions on the first field.
    fn conditions() -> impl Strategy<Value = Expression> {
        let field = FieldIndex(0);
        let comparison = prop_oneof![
            8 => (prop::sample::select(&TESTS[..]), "[/ab]{0,3}")
                .prop_map(move |(test, text)| Expression::Text(field, test, text)),
            1 => (0..3_u64).prop_map(move |number| {
                Expression::Number(field, (Bound::Unbounded, Bound::Excluded((number, false))))
            }),
            1 => Just(Expression::Present(field)),
        ];
        comparison.prop_recursive(3, 8, 3, |part| {
            prop_oneof![
                prop::collection::vec(part.clone(), 1..3).prop_map(Expression::Or),
                prop::collection::vec(part.clone(), 1..3).prop_map(Expression::And),
                part.prop_map(|part| Expression::Not(Box::new(part))),
            ]
        })
    }

    /// Evaluates the condition; the n-th comparison uses the reading chosen by the n-th bit of `choice`.
    fn holds_by(condition: &Expression, choice: &mut u64, readings: [&Selected<'_>; 2]) -> bool {
        let mut of_parts = |parts: &[Expression]| -> Vec<bool> {
            parts.iter().map(|part| holds_by(part, choice, readings)).collect()
        };
        match condition {
            Expression::Or(parts) => of_parts(parts).contains(&true),
            Expression::And(parts) => !of_parts(parts).contains(&false),
            Expression::Not(part) => !holds_by(part, choice, readings),
            comparison => {
                let reading = readings[usize::from(*choice & 1 == 1)];
                *choice >>= 1;
                comparison.holds(reading)
            }
        }
    }

    fn comparisons(condition: &Expression) -> u32 {
        match condition {
            Expression::Or(parts) | Expression::And(parts) => parts.iter().map(comparisons).sum(),
            Expression::Not(part) => comparisons(part),
            _ => 1,
        }
    }

    proptest! {
        /// No choice of readings, comparison by comparison, gives another result.
        #[test]
        fn a_condition_may_be_what_some_choice_of_readings_makes_it(
            condition in conditions(),
            texts in prop::array::uniform2(prop::option::of("[/ab1]{0,4}")),
        ) {
            let [one, other] = texts.each_ref().map(|text| -> Selected<'_> {
                [text.as_deref().map(Cow::Borrowed)].into_iter().collect()
            });
            let leaves = comparisons(&condition);
            prop_assume!(leaves <= 12);
            for wanted in [true, false] {
                let expected = (0..1_u64 << leaves)
                    .any(|choice| holds_by(&condition, &mut choice.clone(), [&one, &other]) == wanted);
                prop_assert_eq!(condition.may_be(wanted, &[&one, &other]), expected);
                prop_assert_eq!(condition.may_be(wanted, &[&one]), condition.holds(&one) == wanted);
            }
        }
    }
}
