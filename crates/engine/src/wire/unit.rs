//! The units of time in Envoy's protocol: the only table of their numbers and names.
//!
//! `envoy.type.v3.RateLimitUnit` of requests and `RateLimitResponse.RateLimit.Unit` of answers have the same numbers
//! and names, except that only answers have a week.

use crate::Unit;

/// The number and the name of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireUnit {
    /// The number in both enums.
    pub number: i32,
    /// The name in both enums.
    pub name: &'static str,
}

impl WireUnit {
    /// No unit: an absent or undefined one.
    pub const UNKNOWN: Self = Self { number: 0, name: "UNKNOWN" };
}

/// The units of requests, in the order of their numbers.
const OF_REQUESTS: [Unit; 6] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year];

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

/// The unit with this number in a request. Like in envoyproxy/ratelimit, the week has the
/// number that it has in answers.
#[must_use]
pub fn request_unit(number: i32) -> Option<Unit> {
    Unit::ALL.iter().copied().find(|&unit| WireUnit::from(unit).number == number)
}

/// The number of the unit with this name in a request, [`WireUnit::UNKNOWN`] included.
pub(super) fn request_number(name: &str) -> Option<i32> {
    request_units().find(|unit| unit.name == name).map(|unit| unit.number)
}

/// The names of the units of requests, [`WireUnit::UNKNOWN`] included.
pub(super) fn request_names() -> Vec<&'static str> {
    request_units().map(|unit| unit.name).collect()
}

/// The units of requests, [`WireUnit::UNKNOWN`] included.
pub fn request_units() -> impl Iterator<Item = WireUnit> {
    [WireUnit::UNKNOWN].into_iter().chain(OF_REQUESTS.map(WireUnit::from))
}
