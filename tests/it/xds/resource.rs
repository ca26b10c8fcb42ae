//! Resources as JSON that is spelt like rule files, as bytes on the wire.

use std::collections::HashMap;

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Any, ListValue, Struct, Value as ProtoValue};
use envoy_types::pb::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
};
use prost::Message as _;
use serde_json::Value;

use crate::support::ads::TYPE_URL;

pub fn resource(json: &Value) -> Any {
    let config = RateLimitConfig {
        name: text(json, "name"),
        domain: text(json, "domain"),
        descriptors: elements(json, "descriptors").map(descriptor).collect(),
    };
    from_bytes(TYPE_URL, config.encode_to_vec())
}

pub fn from_bytes(type_url: &str, value: Vec<u8>) -> Any {
    Any { type_url: type_url.to_owned(), value }
}

pub fn from_hex(type_url: &str, hex: &str) -> Any {
    let digits = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("two hexadecimal digits")
    };
    from_bytes(type_url, digits.map(byte).collect())
}

fn text(json: &Value, name: &str) -> String {
    json[name].as_str().unwrap_or_default().to_owned()
}

fn flag(json: &Value, name: &str) -> bool {
    json[name].as_bool().unwrap_or_default()
}

fn elements<'j>(json: &'j Value, name: &str) -> impl Iterator<Item = &'j Value> {
    json[name].as_array().into_iter().flatten()
}

fn descriptor(json: &Value) -> RateLimitDescriptor {
    RateLimitDescriptor {
        key: text(json, "key"),
        value: text(json, "value"),
        rate_limit: json.get("rate_limit").map(policy),
        descriptors: elements(json, "descriptors").map(descriptor).collect(),
        shadow_mode: flag(json, "shadow_mode"),
        detailed_metric: flag(json, "detailed_metric"),
        quota_mode: flag(json, "quota_mode"),
        metadata: json.get("metadata").map(fields),
    }
}

fn policy(json: &Value) -> RateLimitPolicy {
    let unit = json["unit"].as_str().unwrap_or("UNKNOWN");
    let named = RateLimitUnit::from_str_name(unit).map(i32::from);
    let requests_per_unit = json["requests_per_unit"].as_u64().unwrap_or_default();
    RateLimitPolicy {
        unit: named.unwrap_or_else(|| unit.parse().expect("the name or the number of a unit")),
        requests_per_unit: requests_per_unit.try_into().expect("32 bits"),
        unlimited: flag(json, "unlimited"),
        name: text(json, "name"),
        replaces: elements(json, "replaces")
            .map(|json| RateLimitReplace { name: text(json, "name") })
            .collect(),
    }
}

fn fields(json: &Value) -> Struct {
    let object = json.as_object().expect("an object").iter();
    Struct { fields: object.map(|(name, json)| (name.clone(), value(json))).collect::<HashMap<_, _>>() }
}

fn value(json: &Value) -> ProtoValue {
    let kind = match json {
        Value::Null => Kind::NullValue(0),
        Value::Bool(flag) => Kind::BoolValue(*flag),
        Value::Number(number) => Kind::NumberValue(number.as_f64().expect("a double")),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(value).collect() }),
        Value::Object(_) => Kind::StructValue(fields(json)),
    };
    ProtoValue { kind: Some(kind) }
}
