//! Deserializers for the JSON mapping of protobuf, where serde's own are not enough.
//!
//! The mapping writes 64-bit numbers as strings or numbers, enums as names or numbers, wrappers as the wrapped value,
//! and any absent field as null.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::text::text_of_bytes;
use crate::limit::key::Entry;
use crate::limit::period;

/// Null is the type's default.
pub fn default_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Null is the empty string. A JSON string may hold more than Unicode: half of a surrogate pair as an escape, or bytes
/// that are not UTF-8.
pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let Text(text) = default_if_null(from)?;
    Ok(text)
}

/// Reads a number or a string; null is 0.
pub fn unsigned_number<'de, D: Deserializer<'de>, T: TryFrom<i128> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(optional_number(from)?.unwrap_or_default())
}

/// Like [`unsigned_number`], but null is `None`: a wrapper such as `google.protobuf.UInt64Value`.
pub fn optional_number<'de, D: Deserializer<'de>, T: TryFrom<i128>>(from: D) -> Result<Option<T>, D::Error> {
    let number: Option<Number<T>> = Option::deserialize(from)?;
    Ok(number.map(|Number(number)| number))
}

/// Null is an empty list.
pub(in crate::request) fn entries<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Entry>, D::Error> {
    let entries: Vec<EntryJson> = objects(from)?;
    Ok(entries.into_iter().map(|EntryJson { key, value }| Entry { key, value }).collect())
}

/// Reads a list of messages; null is an empty list.
///
/// # Errors
/// If an element is not an object.
pub fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let objects: Vec<Object<T>> = default_if_null(from)?;
    Ok(objects.into_iter().map(|Object(message)| message).collect())
}

/// Null is `None`.
pub(in crate::request) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let object: Option<Object<T>> = Option::deserialize(from)?;
    Ok(object.map(|Object(message)| message))
}

/// A message, written as an object. serde would also read a struct from a list of its fields, which the mapping does
/// not allow.
#[derive(Clone, Copy, Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, fields: M) -> Result<Self::Value, M::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// Reads an `envoy.type.v3.RateLimitUnit` by name or number; null is 0. Undefined numbers pass: validation reports
/// them, as for gRPC.
pub(in crate::request) fn unit<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let UnitJson(unit) = default_if_null(from)?;
    Ok(unit)
}

/// Returns the whole number that equals a double. Numbers of a protobuf `Struct` are doubles, and whole ones are
/// written without a fraction.
pub fn whole_number(number: f64) -> Option<i64> {
    const EXACT_UP_TO: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
    (number.fract() == 0.0 && number.abs() <= EXACT_UP_TO).then_some(number as i64)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EntryJson {
    #[serde(deserialize_with = "text")]
    key: String,
    #[serde(deserialize_with = "text")]
    value: String,
}

#[derive(Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_bytes(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    /// serde_json passes half of a surrogate pair in UTF-8 form.
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text, E> {
        Ok(Text(text_of_bytes(bytes)))
    }
}

/// Written as a number or a string.
pub struct Number<T>(pub T);

impl<'de, T: TryFrom<i128>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected =
            || format!("an unsigned whole number of {} bits, as a number or as text", 8 * size_of::<T>());
        from.deserialize_any(NumberVisitor { expected, read_text: number_of_text }).map(Self)
    }
}

/// `None` unless the string is a number as JSON writes it, without the whitespace that JSON allows around it.
fn number_of_text<T: TryFrom<i128>>(text: &str) -> Option<T> {
    let starts_like_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let is_number = starts_like_number && text.ends_with(|c: char| c.is_ascii_digit());
    let number: Option<Number<T>> = is_number.then(|| serde_json::from_str(text).ok()).flatten();
    number.map(|Number(number)| number)
}

#[derive(Default)]
struct UnitJson(i32);

impl<'de> Deserialize<'de> for UnitJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let expected = || format!("one of {}, or its number", period::request_names().join(", "));
        from.deserialize_any(NumberVisitor { expected, read_text: period::request_number }).map(Self)
    }
}

struct NumberVisitor<T> {
    /// For messages.
    expected: fn() -> String,
    read_text: fn(&str) -> Option<T>,
}

impl<T: TryFrom<i128>> NumberVisitor<T> {
    fn fitting<E: Error>(&self, number: i128, written: Unexpected<'_>) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::invalid_value(written, self))
    }
}

impl<T: TryFrom<i128>> Visitor<'_> for NumberVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&(self.expected)())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.fitting(number.into(), Unexpected::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.fitting(number.into(), Unexpected::Signed(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        let written = Unexpected::Float(number);
        if number.fract() != 0.0 {
            return Err(E::invalid_value(written, &self));
        }
        // A whole number written with a point or an exponent. Above 2^53 it is the nearest double, which makes no
        // difference: no limit is that large.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "what does not fit saturates, and fits no 64 bits"
        )]
        self.fitting(number as i128, written)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read_text)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::Object;
    use crate::request::{Bounds, RawDescriptor, RawRequest};
    use crate::{Period, Request, Unit, text_of_bytes};

    const BOUNDS: Bounds = Bounds { max_descriptors: 8, max_entries: 8, max_value_bytes: 64 };

    fn parse(text: &str) -> Result<Request, String> {
        let Object(raw): Object<RawRequest> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        raw.validate(&BOUNDS).map_err(|error| error.to_string())
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
    fn whole_numbers_may_have_a_point_or_an_exponent() {
        let hits = |number: &str| {
            let text = format!(
                r#"{{"domain":"d","descriptors":[{{"entries":[],"hitsAddend":{number},"limit":{{"unit":2e0}}}}]}}"#
            );
            parse(&text).expect(number).descriptors[0].hits
        };
        let table = [
            ("2.0", 2),
            ("10e-1", 1),
            ("-0", 0),
            (r#""2.0""#, 2),
            (r#""1e2""#, 100),
            (r#""-0""#, 0),
            (r#""18446744073709551615""#, u64::MAX),
            (r#""1E+18""#, 1_000_000_000_000_000_000),
        ];
        for (number, expected) in table {
            assert_eq!(hits(number), Some(expected), "{number}");
        }
    }

    #[test]
    fn what_is_not_unicode_is_read_as_by_grpc() {
        let value = |written: &[u8]| {
            let text =
                [br#"{"domain":"d","descriptors":[{"entries":[{"value":""#, written, br#""}]}]}"#].concat();
            let raw: RawRequest = serde_json::from_slice(&text).expect("is a request");
            raw.descriptors[0].entries[0].value.clone()
        };
        let table: [(&[u8], &[u8]); 5] = [
            // JSON input, and the bytes that mean the same over gRPC
            (br"caf\u00e9", "caf\u{e9}".as_bytes()),
            (br"\ud83d\ude00", "\u{1f600}".as_bytes()),
            (br"a\ud800z", b"a\xed\xa0\x80z"),
            (br"\udc80", b"\xed\xb2\x80"),
            (b"caf\xe9", b"caf\xe9"),
        ];
        for (written, bytes) in table {
            assert_eq!(value(written), text_of_bytes(bytes), "{}", written.escape_ascii());
        }
    }

    #[test]
    fn null_means_absent() {
        let text = r#"{"domain":null,"descriptors":[{"entries":null,"limit":null,"hitsAddend":null}],"hitsAddend":null}"#;
        let raw: RawRequest = serde_json::from_str(text).expect("is a request");
        assert_eq!(raw, RawRequest { descriptors: vec![RawDescriptor::default()], ..RawRequest::default() });
    }

    #[test]
    fn what_is_wrong_is_named() {
        let table = [
            (r#"{"domian":"d"}"#, "unknown field `domian`"),
            (r#"{"domain":5}"#, "invalid type: integer `5`, expected a string"),
            (r#"{"domain":["d"]}"#, "invalid type: sequence, expected a string"),
            (
                r#"{"descriptors":[{"entries":[{"key":true}]}]}"#,
                "invalid type: boolean `true`, expected a string",
            ),
            (r#"{"hitsAddend":-1}"#, "unsigned whole number of 32 bits"),
            (r#"{"hitsAddend":4294967296}"#, "unsigned whole number of 32 bits"),
            (r#"{"hitsAddend":1.5}"#, "unsigned whole number"),
            (r#"{"hitsAddend":"+3"}"#, "unsigned whole number"),
            (r#"{"hitsAddend":" 3"}"#, "unsigned whole number"),
            (r#"{"hitsAddend":"3 "}"#, "unsigned whole number"),
            (r#"{"hitsAddend":"03"}"#, "unsigned whole number"),
            (r#"{"hitsAddend":"0x3"}"#, "unsigned whole number"),
            (r#"{"hitsAddend":"3.5"}"#, "unsigned whole number"),
            (r#"{"hitsAddend":"-3"}"#, "unsigned whole number"),
            (r#"{"hitsAddend":"NaN"}"#, "unsigned whole number"),
            (r#"{"hitsAddend":""}"#, "unsigned whole number"),
            (r#"{"descriptors":[{"hitsAddend":1e20}]}"#, "unsigned whole number of 64 bits"),
            (r#"{"descriptors":[{"limit":{"unit":1.5}}]}"#, "one of UNKNOWN, SECOND"),
            (r#"["d",[]]"#, "invalid type: sequence, expected an object"),
            (r#"{"domain":"d","descriptors":[[[]]]}"#, "invalid type: sequence, expected an object"),
            (r#"{"descriptors":[{"entries":[["k","v"]]}]}"#, "invalid type: sequence, expected an object"),
            (r#"{"descriptors":[{"limit":[5,"MINUTE"]}]}"#, "invalid type: sequence, expected an object"),
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
