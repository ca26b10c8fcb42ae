//! Converts the types generated from `proto/` to the types of the transport and the engine, and back. Strings and lists
//! are moved, not cloned.

use engine::wire::RawLimit;
use engine::wire::WireUnit;
use engine::wire::{RawDescriptor, RawRequest};
use engine::{Code, Entry, Limit, Metadata, text_of_bytes};

use super::pb::envoy::config::core::v3::HeaderValue;
use super::pb::envoy::extensions::common::ratelimit::v3 as common;
use super::pb::envoy::service::ratelimit::v3::rate_limit_response as wire;
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::decide::answer::DescriptorStatus;
use crate::decide::headers::{Header, printable};
use crate::decide::{CallerAnswer, DecisionAnswer};

impl From<RateLimitRequest> for RawRequest {
    fn from(message: RateLimitRequest) -> Self {
        Self {
            domain: text(message.domain),
            descriptors: message.descriptors.into_iter().map(RawDescriptor::from).collect(),
            hits_addend: message.hits_addend,
        }
    }
}

impl From<common::RateLimitDescriptor> for RawDescriptor {
    fn from(message: common::RateLimitDescriptor) -> Self {
        let limit = message.limit.map(|limit| RawLimit {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
            unit_multiplier: limit.unit_multiplier,
        });
        Self {
            entries: message.entries.into_iter().map(Entry::from).collect(),
            limit,
            hits_addend: message.hits_addend,
            is_negative_hits: message.is_negative_hits,
        }
    }
}

impl From<common::rate_limit_descriptor::Entry> for Entry {
    fn from(message: common::rate_limit_descriptor::Entry) -> Self {
        Self { key: text(message.key), value: text(message.value) }
    }
}

/// For the commands that are clients.
impl From<Entry> for common::rate_limit_descriptor::Entry {
    fn from(entry: Entry) -> Self {
        Self { key: entry.key.into_bytes(), value: entry.value.into_bytes() }
    }
}

/// Bytes that are UTF-8 are moved.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| text_of_bytes(error.as_bytes()))
}

impl From<DecisionAnswer<'_>> for RateLimitResponse {
    fn from(answer: DecisionAnswer<'_>) -> Self {
        Self {
            overall_code: code(answer.decision.overall).into(),
            statuses: answer.statuses().map(wire::DescriptorStatus::from).collect(),
            response_headers_to_add: answer.headers().into_iter().map(HeaderValue::from).collect(),
            dynamic_metadata: answer.metadata().and_then(to_struct),
            ..Self::default()
        }
    }
}

impl CallerAnswer for RateLimitResponse {
    fn denial() -> Self {
        Self { overall_code: wire::Code::OverLimit.into(), ..Self::default() }
    }
}

impl From<DescriptorStatus<'_>> for wire::DescriptorStatus {
    fn from(status: DescriptorStatus<'_>) -> Self {
        // Periods are at most 366 days, so the seconds always fit.
        let until_reset = |wait: std::time::Duration| prost_types::Duration {
            seconds: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            nanos: wait.subsec_nanos().cast_signed(),
        };
        Self {
            code: code(status.code).into(),
            current_limit: status.limit.map(wire::RateLimit::from),
            limit_remaining: status.remaining,
            duration_until_reset: status.until_reset.map(until_reset),
            quota: None,
        }
    }
}

impl From<&Limit> for wire::RateLimit {
    fn from(limit: &Limit) -> Self {
        let period = limit.spec.period;
        Self {
            requests_per_unit: limit.spec.requests_per_unit,
            unit: WireUnit::from(period.unit()).number,
            // Envoy writes the name into a header, between quotes, without escaping it.
            name: limit.spec.name.as_deref().map(printable).unwrap_or_default(),
            unit_multiplier: Some(period.multiplier()).filter(|&multiplier| multiplier != 1),
        }
    }
}

impl From<Header<'_>> for HeaderValue {
    fn from(header: Header<'_>) -> Self {
        Self { key: header.name.to_owned(), value: header.value, raw_value: Vec::new() }
    }
}

fn code(code: Code) -> wire::Code {
    match code {
        Code::Ok => wire::Code::Ok,
        Code::OverLimit => wire::Code::OverLimit,
    }
}

fn to_struct(metadata: Metadata) -> Option<prost_types::Struct> {
    match metadata {
        Metadata::Map(fields) => Some(prost_types::Struct {
            fields: fields.into_iter().map(|(name, value)| (name, to_value(value))).collect(),
        }),
        _ => None,
    }
}

fn to_value(metadata: Metadata) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match metadata {
        Metadata::Null => Kind::NullValue(0),
        Metadata::Bool(value) => Kind::BoolValue(value),
        Metadata::Number(value) => Kind::NumberValue(value),
        Metadata::Text(text) => Kind::StringValue(text),
        Metadata::List(items) => {
            Kind::ListValue(prost_types::ListValue { values: items.into_iter().map(to_value).collect() })
        }
        map @ Metadata::Map(_) => to_struct(map).map_or(Kind::NullValue(0), Kind::StructValue),
    };
    prost_types::Value { kind: Some(kind) }
}
