//! The answers of the service in the form of the recorded ones.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value as ProtobufValue};
use serde_json::{Map, Value, json};
use tonic::Code;

use crate::support::grpc::{DescriptorStatus, RateLimitResponse};
use crate::support::http;

/// What this service adds to the dynamic metadata of the reference; docs/migrating.md lists them.
const ADDED_METADATA: [&str; 6] =
    ["rule", "limit", "decided_at_us", "retry_after_ms", "delay_ms", "on_store_failure"];

/// Seconds since 1970 before and after a request.
pub struct Span {
    pub start: u64,
    pub end: u64,
}

/// The units with their seconds.
const UNITS: [(&str, u64); 7] = [
    ("SECOND", 1),
    ("MINUTE", 60),
    ("HOUR", 3_600),
    ("DAY", 86_400),
    ("WEEK", 7 * 86_400),
    ("MONTH", 30 * 86_400),
    ("YEAR", 365 * 86_400),
];

fn unit_seconds(name: &str) -> u64 {
    UNITS.iter().find(|(unit, _)| *unit == name).unwrap_or_else(|| panic!("no unit {name}")).1
}

impl Span {
    /// Whether a window of a minute or longer that the case names ended in between.
    pub fn ends_a_window(&self, case: &str) -> bool {
        let named = UNITS[1..].iter().filter(|(name, _)| case.contains(name));
        named.into_iter().any(|(_, seconds)| self.start / seconds != self.end / seconds)
    }

    /// Whether the rest of the unit's window had this many seconds during the request, or a second before: a denial
    /// that is repeated without Redis tells the longest wait that is possible.
    fn is_rest(&self, seconds: u64, unit: &str) -> bool {
        let window = unit_seconds(unit);
        (self.start - 1..=self.end).any(|now| window - now % window == seconds)
    }
}

pub fn code_name(code: Code) -> String {
    let name = format!("{code:?}");
    let words = name.char_indices().map(|(index, letter)| {
        let gap = if index > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", letter.to_ascii_uppercase())
    });
    words.collect()
}

pub fn response(response: RateLimitResponse) -> Value {
    let mut fields = Map::new();
    fields.insert("overall_code".to_owned(), response.overall_code().as_str_name().into());
    fields.insert("statuses".to_owned(), response.statuses.iter().map(status).collect());
    if !response.response_headers_to_add.is_empty() {
        let headers = response.response_headers_to_add.into_iter();
        let headers = headers.map(|header| (header.key, Value::String(header.value)));
        fields.insert("headers".to_owned(), Value::Object(headers.collect()));
    }
    assert!(response.request_headers_to_add.is_empty() && response.raw_body.is_empty());
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamic_metadata".to_owned(), struct_json(metadata));
    }
    Value::Object(fields)
}

fn status(status: &DescriptorStatus) -> Value {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), status.code().as_str_name().into());
    if let Some(limit) = &status.current_limit {
        fields.insert("current_limit".to_owned(), limit_json(limit));
    }
    if status.current_limit.is_some() || status.limit_remaining != 0 {
        fields.insert("limit_remaining".to_owned(), status.limit_remaining.into());
    }
    if let Some(wait) = &status.duration_until_reset {
        assert_eq!(wait.nanos, 0, "whole seconds");
        fields.insert("duration_until_reset".to_owned(), format!("{}s", wait.seconds).into());
    }
    Value::Object(fields)
}

fn limit_json(limit: &RateLimit) -> Value {
    let mut fields = Map::new();
    if !limit.name.is_empty() {
        fields.insert("name".to_owned(), limit.name.clone().into());
    }
    fields.insert("requests_per_unit".to_owned(), limit.requests_per_unit.into());
    fields.insert("unit".to_owned(), limit.unit().as_str_name().into());
    Value::Object(fields)
}

fn struct_json(fields: &Struct) -> Value {
    fields.fields.iter().map(|(name, value)| (name.clone(), value_json(value))).collect()
}

fn value_json(value: &ProtobufValue) -> Value {
    match value.kind.as_ref().expect("a value has a kind") {
        Kind::NullValue(_) => Value::Null,
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => text.clone().into(),
        Kind::BoolValue(flag) => (*flag).into(),
        Kind::StructValue(fields) => struct_json(fields),
        Kind::ListValue(list) => list.values.iter().map(value_json).collect(),
    }
}

/// The response to a step with the fields that are recorded.
pub fn http_response(response: &http::Response, is_lines: bool, recorded: &Value) -> Value {
    let content_type = response.header("content-type").unwrap_or_default();
    let body = if is_lines {
        let mut lines: Vec<_> = response.body.lines().collect();
        lines.sort_unstable();
        json!(lines)
    } else {
        serde_json::from_str(&response.body)
            .ok()
            .filter(|_| content_type == "application/json")
            .unwrap_or_else(|| json!(response.body))
    };
    let mut fields =
        Map::from_iter([("status".to_owned(), json!(response.status)), ("body".to_owned(), body)]);
    if recorded.get("content_type").is_some() {
        fields.insert("content_type".to_owned(), json!(content_type));
    }
    Value::Object(fields)
}

/// Both answers without what may differ between two runs: durations, headers with durations, the spaces of protobuf
/// text; and without what this service adds.
pub fn comparable(recorded: &Value, mut answered: Value, span: &Span) -> (Value, Value) {
    name_windows(&mut answered, recorded, span);
    for place in ["/answer/dynamic_metadata", "/body/dynamicMetadata"] {
        if let Some(Value::Object(metadata)) = answered.pointer_mut(place) {
            metadata.retain(|name, _| !ADDED_METADATA.contains(&name.as_str()));
        }
    }
    (plain_numbers(recorded), plain_numbers(&answered))
}

/// Writes `window` in place of each duration that is the rest of its unit's window, and `window UNIT` in place of a
/// header's value where the recorded one has it.
fn name_windows(answered: &mut Value, recorded: &Value, span: &Span) {
    if let (Value::String(text), Value::String(expected)) = (&mut *answered, recorded) {
        let unit = expected.strip_prefix("window ");
        if unit.is_some_and(|unit| text.parse().is_ok_and(|seconds| span.is_rest(seconds, unit))) {
            text.clone_from(expected);
        }
        return;
    }
    match answered {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                name_windows(item, &recorded[index], span);
            }
        }
        Value::Object(fields) => {
            for (limit, duration) in
                [("current_limit", "duration_until_reset"), ("currentLimit", "durationUntilReset")]
            {
                let unit = fields.get(limit).and_then(|limit| limit["unit"].as_str()).map(str::to_owned);
                if let (Some(unit), Some(Value::String(text))) = (unit, fields.get_mut(duration)) {
                    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
                    if seconds.is_some_and(|seconds| span.is_rest(seconds, &unit)) {
                        "window".clone_into(text);
                    }
                }
            }
            for (name, field) in fields {
                name_windows(field, &recorded[name.as_str()], span);
            }
        }
        _ => {}
    }
}

/// The value with every number as a double, and with single spaces in texts.
fn plain_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(plain_numbers).collect(),
        Value::Object(fields) => {
            let is_text = |name: &str| name == "limit";
            let plain = |(name, field): (&String, &Value)| match field {
                Value::String(text) if is_text(name) => {
                    (name.clone(), text.split_whitespace().collect::<Vec<_>>().join(" ").into())
                }
                field => (name.clone(), plain_numbers(field)),
            };
            fields.iter().map(plain).collect()
        }
        other => other.clone(),
    }
}
