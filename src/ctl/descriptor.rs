//! Parses a descriptor and its limit from the command line: `key=value,key=value`, and `5/minute` or `100/15minute`.

use std::str::FromStr;

use engine::Entry;
use ratelimitd::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratelimitd::grpc::pb::envoy::r#type::v3::RateLimitUnit;
use serde_json::{Value, json};

/// A descriptor on the command line: its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorArg(pub Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// An entry starts with `=`, or is empty. Entries are counted from 1.
    #[error("entry {number} of '{text}' has no key; a descriptor is key=value[,key=value...]")]
    NoKey { number: usize, text: String },
    /// A forgotten value would be charged to a separate counter.
    #[error("'{entry}' has no value; write {entry}=VALUE, or {entry}= for an empty value")]
    NoValue { entry: String },
}

/// Parses `key=value[,key=value...]`.
///
/// The first `=` of an entry ends the key, so values may contain `=`. A comma within a value is written `\,`; any other
/// backslash is part of the value.
impl FromStr for DescriptorArg {
    type Err = DescriptorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let entry = |(index, entry): (usize, String)| match entry.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                Ok(Entry { key: key.to_owned(), value: value.to_owned() })
            }
            None if !entry.is_empty() => Err(DescriptorError::NoValue { entry }),
            _ => Err(DescriptorError::NoKey { number: index + 1, text: text.to_owned() }),
        };
        split_entries(text).into_iter().enumerate().map(entry).collect::<Result<_, _>>().map(Self)
    }
}

fn split_entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for part in text.split(',') {
        match entries.last_mut().filter(|entry| entry.ends_with('\\')) {
            Some(entry) => {
                entry.pop();
                entry.push(',');
                entry.push_str(part);
            }
            None => entries.push(part.to_owned()),
        }
    }
    entries
}

impl DescriptorArg {
    /// Formats the descriptor for the admin port.
    pub(super) fn json(&self, limit: Option<&LimitArg>) -> Value {
        let entries = self.0.iter().map(|entry| json!({"key": entry.key, "value": entry.value}));
        json!({"entries": entries.collect::<Value>(), "limit": limit.map(LimitArg::json)})
    }
}

/// A limit that a request brings with its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitArg {
    requests_per_unit: u32,
    unit: RateLimitUnit,
    multiplier: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected N/UNIT or N/MUNIT, such as 5/minute or 100/15minute; a unit is second, minute, hour, day, week, month or year"
)]
pub struct LimitArgError;

/// Parses `N/UNIT` and `N/MUNIT`, where M is an integer. Requests lack a unit for a week: it is 7 days.
impl FromStr for LimitArg {
    type Err = LimitArgError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (requests, period) = text.split_once('/').ok_or(LimitArgError)?;
        let letters = period.find(|character: char| !character.is_ascii_digit()).ok_or(LimitArgError)?;
        let (multiplier, unit) = period.split_at(letters);
        let (unit, units) = match unit.to_uppercase().as_str() {
            "WEEK" => ("DAY".to_owned(), 7),
            _ => (unit.to_uppercase(), 1),
        };
        let unit = RateLimitUnit::from_str_name(&unit).filter(|&unit| unit != RateLimitUnit::Unknown);
        let number = |text: &str| text.parse::<u32>().map_err(|_| LimitArgError);
        let multiplier = if multiplier.is_empty() { 1 } else { number(multiplier)? };
        Ok(Self {
            requests_per_unit: number(requests)?,
            unit: unit.ok_or(LimitArgError)?,
            multiplier: multiplier.checked_mul(units).ok_or(LimitArgError)?,
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

    fn json(&self) -> Value {
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

    fn pairs(text: &str) -> Vec<(String, String)> {
        let DescriptorArg(entries) = text.parse().expect("a descriptor");
        entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
    }

    #[test]
    fn descriptors_are_read_as_written() {
        let table: [(&str, &[(&str, &str)]); 7] = [
            ("a=1", &[("a", "1")]),
            ("a=1,b=2", &[("a", "1"), ("b", "2")]),
            ("a=,b=", &[("a", ""), ("b", "")]),           // empty values
            ("path=/x?y=1", &[("path", "/x?y=1")]),       // the first `=` ends the key
            (r"a=1\,2,b=3", &[("a", "1,2"), ("b", "3")]), // an escaped comma
            (r"a=c:\dir,b=3", &[("a", r"c:\dir"), ("b", "3")]), // a plain backslash
            (r"a=\,\,", &[("a", ",,")]),
        ];
        for (text, expected) in table {
            let expected: Vec<_> =
                expected.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            assert_eq!(pairs(text), expected, "{text}");
        }
    }

    #[test]
    fn an_entry_without_a_key_is_refused() {
        for (text, number) in [("", 1), ("=1", 1), ("a=1,", 2), ("a=1,,b=2", 2)] {
            let error = text.parse::<DescriptorArg>().expect_err(text);
            assert_eq!(error, DescriptorError::NoKey { number, text: text.to_owned() });
        }
    }

    #[test]
    fn an_entry_without_a_value_is_refused() {
        for (text, entry) in [("a", "a"), ("a=1,b", "b"), (r"a\,b", "a,b")] {
            let error = text.parse::<DescriptorArg>().expect_err(text);
            assert_eq!(error, DescriptorError::NoValue { entry: entry.to_owned() });
        }
        let error = "tenant".parse::<DescriptorArg>().expect_err("no value").to_string();
        assert_eq!(error, "'tenant' has no value; write tenant=VALUE, or tenant= for an empty value");
    }

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
            ("5/week", limit(5, RateLimitUnit::Day, 7)), // requests cannot name a week
            ("5/2Week", limit(5, RateLimitUnit::Day, 14)),
            ("5/4294967295week", Err(LimitArgError)),
            ("-5/minute", Err(LimitArgError)),
            ("5/99999999999minute", Err(LimitArgError)),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<LimitArg>(), expected, "{text}");
        }
    }
}
