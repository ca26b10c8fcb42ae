//! Units of time and periods, and the only table of the units in Envoy's protocol.
//!
//! `envoy.type.v3.RateLimitUnit` of requests and `RateLimitResponse.RateLimit.Unit` of answers share numbers and names,
//! except that only answers have a week.

use std::fmt;

use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

/// Longest window, interval or period: 366 days, below 2^45 us.
pub const MAX_PERIOD_US: u64 = 366 * 86_400 * 1_000_000;

/// As in `envoyproxy/ratelimit`, a month has 30 days and a year 365.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, VariantNames)]
#[strum(serialize_all = "snake_case", ascii_case_insensitive, const_into_str)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    /// Shortest first.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    pub fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }
}

/// A multiple of a unit, from 1 s to 366 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Period {
    unit: Unit,
    multiplier: u32,
}

impl Period {
    /// `None` if the period is zero or longer than 366 days.
    pub fn new(unit: Unit, multiplier: u32) -> Option<Self> {
        let us = unit.seconds().checked_mul(u64::from(multiplier))?.checked_mul(1_000_000)?;
        (1..=MAX_PERIOD_US).contains(&us).then_some(Self { unit, multiplier })
    }

    pub fn one(unit: Unit) -> Self {
        Self { unit, multiplier: 1 }
    }

    pub fn unit(self) -> Unit {
        self.unit
    }

    pub fn multiplier(self) -> u32 {
        self.multiplier
    }

    pub fn seconds(self) -> u64 {
        self.unit.seconds() * u64::from(self.multiplier)
    }

    /// Below 2^45.
    pub fn us(self) -> u64 {
        self.seconds() * 1_000_000
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.multiplier {
            1 => f.write_str(self.unit.into_str()),
            n => write!(f, "{n} {}s", self.unit.into_str()),
        }
    }
}

/// Number and name of a unit in both enums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireUnit {
    pub number: i32,
    pub name: &'static str,
}

impl WireUnit {
    /// An absent or undefined unit.
    pub const UNKNOWN: Self = Self { number: 0, name: "UNKNOWN" };
}

/// In the order of their numbers.
const REQUEST_UNITS: [Unit; 6] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year];

impl From<Unit> for WireUnit {
    fn from(unit: Unit) -> Self {
        let (number, name) = match unit {
            Unit::Second => (1, "SECOND"),
            Unit::Minute => (2, "MINUTE"),
            Unit::Hour => (3, "HOUR"),
            Unit::Day => (4, "DAY"),
            Unit::Month => (5, "MONTH"),
            Unit::Year => (6, "YEAR"),
            Unit::Week => (7, "WEEK"),
        };
        Self { number, name }
    }
}

/// Returns the unit with this number in a request. As in envoyproxy/ratelimit, the week has its number from answers.
pub fn request_unit(number: i32) -> Option<Unit> {
    Unit::ALL.iter().copied().find(|&unit| WireUnit::from(unit).number == number)
}

/// Returns the number of a request unit by name, including [`WireUnit::UNKNOWN`].
pub(crate) fn request_number(name: &str) -> Option<i32> {
    request_units().find(|unit| unit.name == name).map(|unit| unit.number)
}

/// Includes [`WireUnit::UNKNOWN`].
pub(crate) fn request_names() -> Vec<&'static str> {
    request_units().map(|unit| unit.name).collect()
}

/// Includes [`WireUnit::UNKNOWN`].
pub fn request_units() -> impl Iterator<Item = WireUnit> {
    [WireUnit::UNKNOWN].into_iter().chain(REQUEST_UNITS.map(WireUnit::from))
}
