//! A `RateLimitRequest` in the JSON mapping of protobuf: names in camelCase or snake_case, 64-bit numbers as text or
//! number, enums by name or number, wrappers as the value they wrap, null for whatever was left out. Unknown fields
//! are refused.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::bounds::{DescriptorError, RequestError, SentLimit};
use crate::engine::{Descriptor, Entry, Request};

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RequestJson {
    #[serde(deserialize_with = "or_default")]
    domain: String,
    #[serde(deserialize_with = "or_default")]
    descriptors: Vec<DescriptorJson>,
    #[serde(deserialize_with = "or_default", alias = "hits_addend")]
    hits_addend: Number<u32>,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct DescriptorJson {
    #[serde(deserialize_with = "or_default")]
    entries: Vec<EntryJson>,
    limit: Option<LimitJson>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<u64>>,
    #[serde(deserialize_with = "or_default", alias = "is_negative_hits")]
    is_negative_hits: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EntryJson {
    #[serde(deserialize_with = "or_default")]
    key: String,
    #[serde(deserialize_with = "or_default")]
    value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct LimitJson {
    #[serde(deserialize_with = "or_default", alias = "requests_per_unit")]
    requests_per_unit: Number<u32>,
    #[serde(deserialize_with = "or_default")]
    unit: UnitJson,
    #[serde(alias = "unit_multiplier")]
    unit_multiplier: Option<Number<u32>>,
}

impl RequestJson {
    /// The request of these parts, as if they had arrived in one message.
    ///
    /// # Errors
    /// [`RequestError`] where a limit that comes along makes no sense.
    pub fn request(
        domain: String,
        hits_addend: u32,
        descriptors: Vec<DescriptorJson>,
    ) -> Result<Request, RequestError> {
        let numbered = descriptors.into_iter().enumerate();
        let descriptors = numbered
            .map(|(place, descriptor)| Descriptor::try_from(descriptor).map_err(|cause| cause.at(place)))
            .collect::<Result<_, _>>()?;
        Ok(Request { domain, hits_addend, descriptors })
    }
}

impl TryFrom<RequestJson> for Request {
    type Error = RequestError;

    fn try_from(sent: RequestJson) -> Result<Self, RequestError> {
        RequestJson::request(sent.domain, sent.hits_addend.0, sent.descriptors)
    }
}

impl TryFrom<DescriptorJson> for Descriptor {
    type Error = DescriptorError;

    fn try_from(sent: DescriptorJson) -> Result<Self, DescriptorError> {
        let limit = sent.limit.map(|limit| SentLimit {
            requests_per_unit: limit.requests_per_unit.0,
            unit: limit.unit.0,
            multiplier: limit.unit_multiplier.map(|multiplier| multiplier.0),
        });
        Ok(Self {
            entries: sent.entries.into_iter().map(|EntryJson { key, value }| Entry { key, value }).collect(),
            limit: limit.map(TryInto::try_into).transpose()?,
            hits: sent.hits_addend.map(|hits| hits.0),
            is_refund: sent.is_negative_hits,
        })
    }
}

/// Reads null as what the field is when it is left out.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// An unsigned number, written as a number or as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Number<T>(pub T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NumberVisitor(PhantomData))
    }
}

struct NumberVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for NumberVisitor<T> {
    type Value = Number<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an unsigned whole number of {} bits, as a number or as text", 8 * size_of::<T>())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        let fits = T::try_from(number).map(Number);
        fits.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match u64::try_from(number) {
            Ok(unsigned) => self.visit_u64(unsigned),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        // 2^53: beyond it a double does not say which whole number was meant.
        if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and within 2^53"
            )]
            return self.visit_u64(number as u64);
        }
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text.parse() {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// `envoy.type.v3.RateLimitUnit`, by name or number; a number that is not defined is kept for the bounds to refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnitJson(i32);

const UNIT_NAMES: [&str; 7] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"];

impl<'de> Deserialize<'de> for UnitJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UnitVisitor)
    }
}

struct UnitVisitor;

impl Visitor<'_> for UnitVisitor {
    type Value = UnitJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}, or its number", UNIT_NAMES.join(", "))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<UnitJson, E> {
        let number = i32::try_from(number);
        Ok(UnitJson(number.map_err(|_| E::custom("a unit's number has 32 bits"))?))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<UnitJson, E> {
        let number = i32::try_from(number);
        Ok(UnitJson(number.map_err(|_| E::custom("a unit's number has 32 bits"))?))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<UnitJson, E> {
        let number = (0..).zip(UNIT_NAMES).find(|(_, known)| *known == name);
        number
            .map(|(number, _)| UnitJson(number))
            .ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Period, Unit};

    fn parse(text: &str) -> Result<Request, String> {
        let sent: RequestJson = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Request::try_from(sent).map_err(|error| error.to_string())
    }

    #[test]
    fn both_spellings_and_all_number_forms_mean_the_same() {
        let camel = r#"{"domain":"d","hitsAddend":2,"descriptors":[{"entries":[{"key":"k","value":"v"}],
            "limit":{"requestsPerUnit":5,"unit":"MINUTE","unitMultiplier":"3"},"hitsAddend":"7","isNegativeHits":true}]}"#;
        let snake = r#"{"domain":"d","hits_addend":"2","descriptors":[{"entries":[{"key":"k","value":"v"}],
            "limit":{"requests_per_unit":5.0,"unit":2,"unit_multiplier":3},"hits_addend":7,"is_negative_hits":true}]}"#;
        let request = parse(camel).expect("is a request");
        assert_eq!(parse(snake), Ok(request.clone()));
        let [descriptor] = &request.descriptors[..] else { panic!("one descriptor") };
        assert_eq!((request.hits_addend, descriptor.hits, descriptor.is_refund), (2, Some(7), true));
        let period = descriptor.limit.expect("has a limit").period;
        assert_eq!(Some(period), Period::new(Unit::Minute, 3));
    }

    #[test]
    fn null_is_as_good_as_left_out() {
        let text = r#"{"domain":null,"descriptors":[{"entries":null,"limit":null,"hitsAddend":null}],"hitsAddend":null}"#;
        let request = parse(text).expect("is a request");
        assert_eq!(request.descriptors, [Descriptor::default()]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let table = [
            (r#"{"domian":"d"}"#, "unknown field `domian`"),
            (r#"{"hitsAddend":-1}"#, "unsigned whole number of 32 bits"),
            (r#"{"hitsAddend":4294967296}"#, "unsigned whole number of 32 bits"),
            (r#"{"hitsAddend":1.5}"#, "unsigned whole number"),
            (r#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#, "one of UNKNOWN, SECOND"),
            (
                r#"{"descriptors":[{"limit":{"unit":"UNKNOWN"}}]}"#,
                "descriptor 0: the limit's unit 0 is not defined",
            ),
            (r#"{"descriptors":[{"limit":{"unit":99}}]}"#, "the limit's unit 99 is not defined"),
        ];
        for (text, expected) in table {
            let error = parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
