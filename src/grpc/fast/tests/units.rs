//! The units of time are those of the protocol.

use engine::Unit;
use engine::{WireUnit, request_unit, request_units};

use crate::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit;
use crate::grpc::pb::envoy::r#type::v3::RateLimitUnit;

#[test]
fn the_units_of_requests_are_those_of_the_contract() {
    for number in -1..=8 {
        let name = RateLimitUnit::try_from(number).ok().map(|unit| unit.as_str_name());
        let known = request_units().find(|unit| unit.number == number).map(|unit| unit.name);
        assert_eq!(known, name, "{number}");
        let is_week = number == WireUnit::from(Unit::Week).number;
        assert_eq!(
            request_unit(number).is_some(),
            is_week || name.is_some_and(|name| name != WireUnit::UNKNOWN.name),
            "{number}"
        );
    }
}

#[test]
fn the_units_of_answers_are_those_of_the_contract() {
    for &unit in Unit::ALL {
        let WireUnit { number, name } = unit.into();
        let defined = rate_limit::Unit::try_from(number).expect("a number of the contract");
        assert_eq!((defined.as_str_name(), unit.into_str()), (name, name.to_ascii_lowercase().as_str()));
    }
}
