//! Keys of rule files: their section, name and value type.

use std::str::FromStr;
use std::time::Duration;

use base::readable_duration;
use engine::{MAX_LIMIT, Share, Shares};
use strum::VariantArray;

/// A kind of map in a rule file, with its own keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub(crate) enum Section {
    /// The whole document.
    File,
    /// An element of `descriptors`.
    Descriptor,
    /// `rate_limit`, or an element of `rate_limits`.
    RateLimit,
    /// An element of `replaces`.
    Replaces,
    /// A value in `tiers`.
    Tier,
    /// `penalty`.
    Penalty,
    /// `feedback`.
    Feedback,
}

impl Section {
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The section's name in messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::File => "the top level",
            Self::Descriptor => "a descriptor",
            Self::RateLimit => "rate_limit",
            Self::Replaces => "a replaces entry",
            Self::Tier => "a tier",
            Self::Penalty => "penalty",
            Self::Feedback => "feedback",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueType {
    /// A string; numbers and booleans are taken as written.
    Text,
    /// A unit of time, case-insensitive.
    Unit,
    /// A whole number up to 2^32 - 1; the field is the minimum in the JSON Schema.
    Integer(u32),
    /// A whole number of units up to [`engine::MAX_LIMIT`].
    Units,
    /// A duration such as `15m`, from a second to this many seconds.
    Duration(u64),
    /// A number from 0 to 1, read from its decimal digits.
    Share,
    /// A list of such numbers, as in [`Shares`].
    Shares,
    Flag,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// A list of maps of this kind.
    List(Section),
    Map(Section),
    /// A map with any keys and values.
    FreeMap,
    /// A map from tier names to their limits.
    Tiers,
}

impl ValueType {
    /// A description of the type, for messages.
    pub fn expected(self) -> String {
        match self {
            Self::Text | Self::Unit | Self::Choice(_) => "a string".to_owned(),
            Self::Integer(_) | Self::Units => format!("a whole number from 0 to {}", self.most()),
            Self::Duration(most_s) => {
                format!("a duration from 1s to {}", readable_duration(Duration::from_secs(most_s)))
            }
            Self::Share => Share::EXPECTED.to_owned(),
            Self::Shares => Shares::EXPECTED.to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) | Self::FreeMap | Self::Tiers => "a map".to_owned(),
        }
    }

    /// Parses a cell of the settings' table. `None` if it does not have the type; lists and maps never do.
    pub fn of_cell(self, text: &str) -> Option<PlainValue<'_>> {
        match self {
            Self::Text => Some(PlainValue::Text(text)),
            Self::Choice(names) => names.contains(&text).then_some(PlainValue::Text(text)),
            Self::Integer(least) => {
                let number = text.parse().ok().filter(|number: &u32| *number >= least);
                number.map(|number| PlainValue::Integer(number.into()))
            }
            Self::Units => text.parse().ok().filter(|units| *units <= MAX_LIMIT).map(PlainValue::Integer),
            Self::Share => Share::parse(text).map(PlainValue::Share),
            Self::Shares => Shares::parse(text.split(',').map(str::trim)).map(PlainValue::Shares),
            // The spellings of YAML's core schema.
            Self::Flag => match text {
                "true" | "True" | "TRUE" => Some(PlainValue::Flag(true)),
                "false" | "False" | "FALSE" => Some(PlainValue::Flag(false)),
                _ => None,
            },
            Self::Unit | Self::Duration(_) | Self::List(_) | Self::Map(_) | Self::FreeMap | Self::Tiers => {
                None
            }
        }
    }

    /// Reads a duration as microseconds. `None` if it is out of range.
    pub fn duration_us(self, text: &str) -> Option<u64> {
        let Self::Duration(most_s) = self else { return None };
        let duration = humantime::parse_duration(text).ok()?;
        let range = Duration::from_secs(1)..=Duration::from_secs(most_s);
        range.contains(&duration).then(|| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }

    /// The largest number of the type.
    pub fn most(self) -> u64 {
        if matches!(self, Self::Units) { MAX_LIMIT } else { u32::MAX.into() }
    }
}

/// A value that is neither a list of maps nor a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainValue<'t> {
    /// For a [`ValueType::Choice`]: one of its names.
    Text(&'t str),
    Integer(u64),
    Share(Share),
    Shares(Shares),
    Flag(bool),
}

impl<'t> PlainValue<'t> {
    pub fn text(self) -> Option<&'t str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Parses a name. The table of keys has already rejected invalid ones.
    pub fn parsed<T: FromStr>(self) -> Option<T> {
        self.text()?.parse().ok()
    }

    /// For keys of type [`ValueType::Units`], or in microseconds for [`ValueType::Duration`].
    pub fn units(self) -> Option<u64> {
        if let Self::Integer(number) = self { Some(number) } else { None }
    }

    /// For keys of type [`ValueType::Integer`].
    pub fn integer(self) -> Option<u32> {
        self.units().and_then(|number| u32::try_from(number).ok())
    }

    pub fn share(self) -> Option<Share> {
        if let Self::Share(share) = self { Some(share) } else { None }
    }

    pub fn shares(self) -> Option<Shares> {
        if let Self::Shares(shares) = self { Some(shares) } else { None }
    }

    pub fn flag(self) -> bool {
        self == Self::Flag(true)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub section: Section,
    pub name: &'static str,
    pub value_type: ValueType,
    /// The description in the JSON Schema.
    pub doc: &'static str,
}
