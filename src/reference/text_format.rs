//! An answer in the text format of protobuf, as Go prints it: fields in their order, two spaces between them, no zeros.

use prost_types::Duration;

use crate::grpc::pb::envoy::config::core::v3::HeaderValue;
use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::{DescriptorStatus, RateLimit};

pub(super) fn answer_text(answer: &RateLimitResponse) -> String {
    let mut fields = vec![code("overall_code", answer.overall_code().as_str_name())];
    fields.extend(answer.statuses.iter().map(|status| Some(message("statuses", status_fields(status)))));
    let headers = answer.response_headers_to_add.iter();
    fields.extend(headers.map(|header| Some(message("response_headers_to_add", header_fields(header)))));
    join(fields)
}

fn status_fields(status: &DescriptorStatus) -> Vec<Option<String>> {
    vec![
        code("code", status.code().as_str_name()),
        status.current_limit.as_ref().map(|limit| message("current_limit", limit_fields(limit))),
        number_field("limit_remaining", status.limit_remaining.into()),
        status.duration_until_reset.as_ref().map(|wait| message("duration_until_reset", wait_fields(wait))),
    ]
}

fn limit_fields(limit: &RateLimit) -> Vec<Option<String>> {
    vec![
        (!limit.name.is_empty()).then(|| format!("name:{:?}", limit.name)),
        number_field("requests_per_unit", limit.requests_per_unit.into()),
        code("unit", limit.unit().as_str_name()),
    ]
}

fn wait_fields(wait: &Duration) -> Vec<Option<String>> {
    vec![number_field("seconds", wait.seconds), number_field("nanos", wait.nanos.into())]
}

fn header_fields(header: &HeaderValue) -> Vec<Option<String>> {
    vec![Some(format!("key:{:?}", header.key)), Some(format!("value:{:?}", header.value))]
}

/// `UNKNOWN` is zero, which is not printed.
fn code(name: &str, value: &str) -> Option<String> {
    (value != "UNKNOWN").then(|| format!("{name}:{value}"))
}

fn number_field(name: &str, value: i64) -> Option<String> {
    (value != 0).then(|| format!("{name}:{value}"))
}

fn message(name: &str, fields: Vec<Option<String>>) -> String {
    format!("{name}:{{{}}}", join(fields))
}

fn join(fields: Vec<Option<String>>) -> String {
    fields.into_iter().flatten().collect::<Vec<_>>().join("  ")
}
