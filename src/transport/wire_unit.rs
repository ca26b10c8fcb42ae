//! The units of time in Envoy's protocol: the only table of their numbers and names.
//!
//! `envoy.type.v3.RateLimitUnit` of requests and `RateLimitResponse.RateLimit.Unit` of answers have the same numbers
//! and names, except that only answers have a week.

use crate::engine::Unit;

/// The number and the name of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WireUnit {
    pub(super) number: i32,
    pub(super) name: &'static str,
}

/// No unit: an absent or undefined one.
const UNKNOWN: WireUnit = WireUnit { number: 0, name: "UNKNOWN" };

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

/// The unit with this number in a request. The week has the number that it has in answers, as in envoyproxy/ratelimit.
pub(super) fn of_request(number: i32) -> Option<Unit> {
    Unit::ALL.into_iter().find(|&unit| WireUnit::from(unit).number == number)
}

/// The number of the unit with this name in a request, [`UNKNOWN`] included.
pub(super) fn request_number(name: &str) -> Option<i32> {
    request_units().find(|unit| unit.name == name).map(|unit| unit.number)
}

/// The names of the units of requests, [`UNKNOWN`] included.
pub(super) fn request_names() -> Vec<&'static str> {
    request_units().map(|unit| unit.name).collect()
}

fn request_units() -> impl Iterator<Item = WireUnit> {
    [UNKNOWN].into_iter().chain(OF_REQUESTS.map(WireUnit::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit;
    use crate::transport::grpc::pb::envoy::r#type::v3::RateLimitUnit;

    #[test]
    fn the_units_of_requests_are_those_of_the_contract() {
        for number in -1..=8 {
            let name = RateLimitUnit::try_from(number).ok().map(|unit| unit.as_str_name());
            let known = request_units().find(|unit| unit.number == number).map(|unit| unit.name);
            assert_eq!(known, name, "{number}");
            let is_week = number == WireUnit::from(Unit::Week).number;
            assert_eq!(
                of_request(number).is_some(),
                is_week || name.is_some_and(|name| name != UNKNOWN.name),
                "{number}"
            );
        }
    }

    #[test]
    fn the_units_of_answers_are_those_of_the_contract() {
        for unit in Unit::ALL {
            let WireUnit { number, name } = unit.into();
            let defined = rate_limit::Unit::try_from(number).expect("a number of the contract");
            assert_eq!((defined.as_str_name(), unit.name()), (name, name.to_ascii_lowercase().as_str()));
        }
    }
}
