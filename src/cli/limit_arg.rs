//! How a limit of a request is written on the command line: `5/minute`, `100/15minute`.

use std::str::FromStr;

use serde_json::{Value, json};

use crate::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use crate::grpc::pb::envoy::r#type::v3::RateLimitUnit;

/// A limit that a request brings with its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitArg {
    requests_per_unit: u32,
    unit: RateLimitUnit,
    multiplier: u32,
}

/// The text is not a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected N/UNIT or N/MUNIT, such as 5/minute or 100/15minute; a unit is second, minute, hour, day, month or year"
)]
pub struct LimitArgError;

/// Parses `N/UNIT` and `N/MUNIT`, where M is a whole number of units.
impl FromStr for LimitArg {
    type Err = LimitArgError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (requests, period) = text.split_once('/').ok_or(LimitArgError)?;
        let letters = period.find(|character: char| !character.is_ascii_digit()).ok_or(LimitArgError)?;
        let (multiplier, unit) = period.split_at(letters);
        let unit =
            RateLimitUnit::from_str_name(&unit.to_uppercase()).filter(|&unit| unit != RateLimitUnit::Unknown);
        let number = |text: &str| text.parse().map_err(|_| LimitArgError);
        Ok(Self {
            requests_per_unit: number(requests)?,
            unit: unit.ok_or(LimitArgError)?,
            multiplier: if multiplier.is_empty() { 1 } else { number(multiplier)? },
        })
    }
}

impl LimitArg {
    pub(super) const ONE_PER_SECOND: Self =
        Self { requests_per_unit: 1, unit: RateLimitUnit::Second, multiplier: 1 };

    pub(super) fn message(&self) -> RateLimitOverride {
        RateLimitOverride {
            requests_per_unit: self.requests_per_unit,
            unit: self.unit.into(),
            unit_multiplier: Some(self.multiplier),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "requestsPerUnit": self.requests_per_unit,
            "unit": self.unit.as_str_name(),
            "unitMultiplier": self.multiplier,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_a_number_a_slash_and_a_period() {
        let limit =
            |requests_per_unit, unit, multiplier| Ok(LimitArg { requests_per_unit, unit, multiplier });
        let table = [
            ("5/minute", limit(5, RateLimitUnit::Minute, 1)),
            ("100/15minute", limit(100, RateLimitUnit::Minute, 15)),
            ("0/Year", limit(0, RateLimitUnit::Year, 1)),
            ("5", Err(LimitArgError)),
            ("5/", Err(LimitArgError)),
            ("5/15", Err(LimitArgError)),
            ("/minute", Err(LimitArgError)),
            ("5/unknown", Err(LimitArgError)),
            ("5/week", Err(LimitArgError)), // requests cannot name a week
            ("-5/minute", Err(LimitArgError)),
            ("5/99999999999minute", Err(LimitArgError)),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<LimitArg>(), expected, "{text}");
        }
    }
}
