//! Converts between the generated protobuf and gRPC types and the types of the engine and of `decide`, and maps errors
//! to statuses. Strings and lists are moved, not cloned.

use engine::{Code, Entry, Limit, Metadata, RawDescriptor, RawLimit, RawRequest, WireUnit, text_of_bytes};
use tonic::Status;
use tonic::metadata::MetadataValue;

use super::pb::envoy::config::core::v3::HeaderValue;
use super::pb::envoy::extensions::common::ratelimit::v3 as common;
use super::pb::envoy::service::ratelimit::v3::rate_limit_response as wire;
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::decide::answer::{DescriptorStatus, Header, printable, protocol_units};
use crate::decide::{Answer, NoDecision, problem};
use crate::telemetry::metrics::RequestFailure;

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

/// For the client commands.
impl From<Entry> for common::rate_limit_descriptor::Entry {
    fn from(entry: Entry) -> Self {
        Self { key: entry.key.into_bytes(), value: entry.value.into_bytes() }
    }
}

/// Converts bytes to a string, without copying them if they are UTF-8.
pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| text_of_bytes(error.as_bytes()))
}

impl From<Answer<'_>> for RateLimitResponse {
    fn from(answer: Answer<'_>) -> Self {
        let mut headers = answer.headers;
        let raw_body = answer.problem.map(|problem| {
            headers.push(Header { name: "content-type", value: problem::CONTENT_TYPE.to_owned() });
            // Envoy chooses the status.
            problem.json(None).into_bytes()
        });
        Self {
            overall_code: code(answer.overall).into(),
            statuses: answer.statuses.into_iter().map(wire::DescriptorStatus::from).collect(),
            response_headers_to_add: headers.into_iter().map(HeaderValue::from).collect(),
            request_headers_to_add: answer.request_headers.into_iter().map(HeaderValue::from).collect(),
            raw_body: raw_body.unwrap_or_default(),
            dynamic_metadata: answer.metadata.and_then(to_struct),
            ..Self::default()
        }
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
            limit_remaining: protocol_units(status.remaining),
            duration_until_reset: status.until_reset.map(until_reset),
            quota: None,
        }
    }
}

impl From<&Limit> for wire::RateLimit {
    fn from(limit: &Limit) -> Self {
        let period = limit.spec.period;
        Self {
            requests_per_unit: protocol_units(limit.spec.requests_per_unit),
            unit: WireUnit::from(period.unit()).number,
            // Envoy writes the name into a header, between quotes and unescaped.
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

/// The only place where an error becomes a gRPC status.
impl From<NoDecision> for Status {
    fn from(error: NoDecision) -> Self {
        let text = error.for_caller();
        match (&error, error.failure()) {
            (NoDecision::Unsupported(_), _) => uncompressed_only(text),
            (NoDecision::TooLong(_), _) => Self::out_of_range(text),
            (_, RequestFailure::Invalid) => Self::invalid_argument(text),
            (_, RequestFailure::Store | RequestFailure::Overloaded | RequestFailure::NoRules) => {
                Self::unavailable(text)
            }
            (_, RequestFailure::Incomplete | RequestFailure::Deadline | RequestFailure::Untaken) => {
                Self::deadline_exceeded(text)
            }
            (_, RequestFailure::Unauthenticated) => Self::unauthenticated(text),
            (_, RequestFailure::Forbidden) => Self::permission_denied(text),
            (_, RequestFailure::Panic) => Self::internal(text),
        }
    }
}

/// Lists the encodings that the client can use, as the protocol requires.
fn uncompressed_only(text: String) -> Status {
    let mut status = Status::unimplemented(text);
    status.metadata_mut().insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
    status
}
