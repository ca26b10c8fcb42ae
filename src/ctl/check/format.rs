//! Formats an answer as text, or as one line of JSON.

use std::time::Duration;

use base::{escaped, readable_duration};
use engine::Entry;
use engine::wire::json::whole_number;
use prost_types::Struct;
use prost_types::value::Kind;
use ratelimitd::decide::usage::LimitNumbers;
use ratelimitd::grpc::pb::envoy::config::core::v3::HeaderValue;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use rules::local_time;
use serde_json::{Value, json};

use crate::descriptor::DescriptorArg;

/// One line for the request, and one indented line for each descriptor, exception and header. `hits`: per descriptor.
pub(super) fn answer_text(descriptors: &[DescriptorArg], hits: u64, answer: &RateLimitResponse) -> String {
    let metadata = metadata(answer);
    let mut out = format!("{}{}\n", code_text(answer.overall_code()), delay_text(&metadata));
    let mut push_line = |line: String| {
        out.push_str(&escaped(line));
        out.push('\n');
    };
    for (index, (descriptor, status)) in descriptors.iter().zip(&answer.statuses).enumerate() {
        let entries = entries_in_metadata(&metadata, index).unwrap_or_else(|| entries_text(descriptor));
        let boundary = next_boundary(&metadata, status, index).unwrap_or_default();
        push_line(format!("  {entries}: {}{boundary}", status_text(status, hits)));
    }
    for (limit, way) in exceptions(&metadata) {
        push_line(format!("  exception for {limit}: {way}"));
    }
    for header in &answer.response_headers_to_add {
        push_line(format!("  {}: {}", header.key, header.value));
    }
    for header in &answer.request_headers_to_add {
        push_line(format!("  to the upstream: {}: {}", header.key, header.value));
    }
    out
}

fn code_text(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER LIMIT",
        Code::Unknown => "UNKNOWN",
    }
}

/// Returns an answer's metadata; null if it has none.
fn metadata(answer: &RateLimitResponse) -> Value {
    answer.dynamic_metadata.as_ref().map_or(Value::Null, struct_json)
}

/// If the request matches a queue: how long to wait before the call that the limit protects.
fn delay_text(metadata: &Value) -> String {
    let delay = metadata["delay_ms"].as_u64().map(Duration::from_millis);
    delay.map(|delay| format!(", wait {}", readable_duration(delay))).unwrap_or_default()
}

/// Returns the limits that exceptions or tiers have changed, each with the steps to the limit that applies; empty
/// without metadata.
fn exceptions(metadata: &Value) -> Vec<(&str, &str)> {
    let ways = metadata["exception"].as_object().into_iter().flatten();
    ways.filter_map(|(limit, way)| Some((limit.as_str(), way.as_str()?))).collect()
}

/// Returns when the window ends, in local time, if the limit has a calendar and the answer has metadata.
fn next_boundary(metadata: &Value, status: &DescriptorStatus, index: usize) -> Option<String> {
    if is_blocked(status) {
        return None;
    }
    let zone = metadata["descriptors"][index]["calendar"].as_str()?;
    let decided_at_us: u64 = metadata["decided_at_us"].as_str()?.parse().ok()?;
    let until_reset = u64::try_from(until_reset(status)?.as_micros()).ok()?;
    let boundary = local_time(zone, decided_at_us.checked_add(until_reset)?)?;
    Some(format!(", next window at {boundary} ({zone})"))
}

/// Returns a descriptor's entries as the service shows them, if the answer has metadata: secret values are hashed.
fn entries_in_metadata(metadata: &Value, index: usize) -> Option<String> {
    let entries = metadata["descriptors"][index]["entries"].as_array()?;
    Some(entries.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join(","))
}

/// The entries as given: their author may read them.
fn entries_text(DescriptorArg(entries): &DescriptorArg) -> String {
    let shown = |entry: &Entry| format!("{}={}", entry.key, entry.value);
    entries.iter().map(shown).collect::<Vec<_>>().join(",")
}

/// `true` if a status's limit is 0.
fn is_blocked(status: &DescriptorStatus) -> bool {
    let is_zero = status.current_limit.as_ref().is_some_and(|limit| limit.requests_per_unit == 0);
    is_zero && status.code() == Code::OverLimit
}

/// Returns how long a limit of 0 blocks at least: the answer has the end of a block, or of a unit after which the limit
/// still blocks.
fn block_text(status: &DescriptorStatus) -> Option<String> {
    let wait = until_reset(status).filter(|_| is_blocked(status))?;
    Some(format!(", blocked for at least {}", readable_duration(wait)))
}

/// Such as `OK, 4 of 5 per minute left, resets in 32s (rule per-user)`.
fn status_text(status: &DescriptorStatus, hits: u64) -> String {
    let code = code_text(status.code());
    let Some(limit) = &status.current_limit else {
        return match status.limit_remaining {
            u32::MAX => format!("{code}, unlimited"),
            _ => format!("{code}, no limit applies"),
        };
    };
    let rule = if limit.name.is_empty() { String::new() } else { format!(" (rule {})", limit.name) };
    let left = match status.limit_remaining {
        // A bucket with a burst above the limit.
        more if more > limit.requests_per_unit => format!("{more} left at {}", limit_text(limit)),
        left => format!("{left} of {} left", limit_text(limit)),
    };
    let wait =
        block_text(status).or_else(|| never_text(status, limit, hits)).unwrap_or_else(|| reset_text(status));
    format!("{code}, {left}{wait}{rule}")
}

/// Returns why waiting does not help. The answer does not contain the limit's burst: if units are missing from the
/// limit, a burst above the limit could hold the cost.
fn never_text(status: &DescriptorStatus, limit: &RateLimit, hits: u64) -> Option<String> {
    if status.code() != Code::OverLimit || hits <= u64::from(limit.requests_per_unit) {
        return None;
    }
    Some(if status.limit_remaining == limit.requests_per_unit {
        format!(", {hits} is more than the limit can ever hold")
    } else {
        format!(
            ", {hits} is more than the limit can ever hold, unless its burst is as large{}",
            reset_text(status)
        )
    })
}

fn limit_text(limit: &RateLimit) -> String {
    let unit = format!("{:?}", limit.unit()).to_lowercase();
    match limit.unit_multiplier {
        None | Some(1) => format!("{} per {unit}", limit.requests_per_unit),
        Some(n) => format!("{} per {n} {unit}s", limit.requests_per_unit),
    }
}

fn reset_text(status: &DescriptorStatus) -> String {
    let until_reset = until_reset(status).filter(|until_reset| !until_reset.is_zero());
    until_reset
        .map_or_else(String::new, |until_reset| format!(", resets in {}", readable_duration(until_reset)))
}

fn until_reset(status: &DescriptorStatus) -> Option<Duration> {
    Duration::try_from(status.duration_until_reset?).ok()
}

/// The message with the names of `/usage`, including zero and empty fields.
pub(super) fn answer_json(answer: &RateLimitResponse) -> Value {
    let headers = |headers: &[HeaderValue]| -> Value {
        headers.iter().map(|header| json!({"key": header.key, "value": header.value})).collect()
    };
    json!({
        "overall_code": answer.overall_code().as_str_name(),
        "statuses": answer.statuses.iter().map(status_json).collect::<Value>(),
        "response_headers_to_add": headers(&answer.response_headers_to_add),
        "request_headers_to_add": headers(&answer.request_headers_to_add),
        "dynamic_metadata": metadata(answer),
    })
}

fn struct_json(fields: &Struct) -> Value {
    fields.fields.iter().map(|(name, value)| (name.clone(), value_json(value))).collect()
}

/// Writes integers without a fraction. The decoder bounds the message's depth.
fn value_json(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => (*flag).into(),
        Some(Kind::NumberValue(number)) => whole_number(*number).map_or((*number).into(), Value::from),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_json).collect(),
        Some(Kind::StructValue(fields)) => struct_json(fields),
    }
}

fn status_json(status: &DescriptorStatus) -> Value {
    let limit = status.current_limit.as_ref().map(|limit| LimitNumbers {
        name: limit.name.clone(),
        requests_per_unit: limit.requests_per_unit.into(),
        unit: Unit::as_str_name(&limit.unit()).to_lowercase(),
        unit_multiplier: limit.unit_multiplier.unwrap_or(1),
        remaining: Some(status.limit_remaining.into()),
    });
    json!({
        "code": status.code().as_str_name(),
        "current_limit": limit,
        "unlimited": limit.is_none() && status.limit_remaining == u32::MAX,
        "until_reset_us": until_reset(status).and_then(|until_reset| u64::try_from(until_reset.as_micros()).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(remaining: u32, wait: (i64, i32), multiplier: Option<u32>) -> DescriptorStatus {
        DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(RateLimit {
                requests_per_unit: 5,
                unit: Unit::Minute.into(),
                name: String::new(),
                unit_multiplier: multiplier,
            }),
            limit_remaining: remaining,
            duration_until_reset: Some(prost_types::Duration { seconds: wait.0, nanos: wait.1 }),
            quota: None,
        }
    }

    #[test]
    fn a_cost_above_the_limit_is_not_told_to_wait_for_a_reset() {
        let over =
            |remaining| DescriptorStatus { code: Code::OverLimit.into(), ..status(remaining, (60, 0), None) };
        let unless = "OVER LIMIT, 2 of 5 per minute left, 6 is more than the limit can ever hold, unless its burst is as \
                      large, resets in 1m";
        let table = [
            (over(5), 6, "OVER LIMIT, 5 of 5 per minute left, 6 is more than the limit can ever hold"),
            (over(2), 6, unless),
            (over(2), 5, "OVER LIMIT, 2 of 5 per minute left, resets in 1m"),
            (status(8, (0, 0), None), 6, "OK, 8 left at 5 per minute"),
        ];
        for (status, hits, sentence) in table {
            assert_eq!(status_text(&status, hits), sentence);
        }
    }

    #[test]
    fn a_block_tells_how_long_it_lasts_at_least() {
        let mut blocked = DescriptorStatus { code: Code::OverLimit.into(), ..status(0, (5_400, 0), None) };
        let limit = blocked.current_limit.as_mut().expect("a limit");
        (limit.requests_per_unit, limit.name) = (0, "per-key".to_owned());
        let text = "OVER LIMIT, 0 of 0 per minute left, blocked for at least 1h 30m (rule per-key)";
        assert_eq!(status_text(&blocked, 1), text);
    }

    #[test]
    fn a_status_reads_as_a_sentence() {
        let over = DescriptorStatus { code: Code::OverLimit.into(), ..status(0, (1, 500_000_000), Some(10)) };
        let bare = |remaining| DescriptorStatus {
            code: Code::Ok.into(),
            limit_remaining: remaining,
            ..DescriptorStatus::default()
        };
        let table = [
            (status(4, (32, 0), None), "OK, 4 of 5 per minute left, resets in 32s"),
            (status(4, (768_663, 0), None), "OK, 4 of 5 per minute left, resets in 8d 21h 31m"),
            (status(5, (0, 0), None), "OK, 5 of 5 per minute left"),
            (status(8, (0, 0), None), "OK, 8 left at 5 per minute"),
            (over, "OVER LIMIT, 0 of 5 per 10 minutes left, resets in 1.5s"),
            (bare(0), "OK, no limit applies"),
            (bare(u32::MAX), "OK, unlimited"),
        ];
        for (status, sentence) in table {
            assert_eq!(status_text(&status, 1), sentence);
        }
    }
}
