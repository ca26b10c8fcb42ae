//! `response.*`: optional parts of an answer.

use super::parsers::{flag, header_name, one_of};
use super::reader::Reader;
use crate::decide::{HeaderNames, HeaderStyle, ResponseOptions};

pub(super) fn response_from_reader(reader: &mut Reader) -> ResponseOptions {
    let headers = [
        ("none", HeaderStyle::None),
        ("envoy_ratelimit", HeaderStyle::EnvoyRatelimit),
        ("ietf", HeaderStyle::Ietf),
    ];
    ResponseOptions {
        headers: reader.take("response.headers", "none", one_of(headers)),
        header_names: HeaderNames {
            limit: reader.take("response.limit_header", "RateLimit-Limit", header_name()),
            remaining: reader.take("response.remaining_header", "RateLimit-Remaining", header_name()),
            reset: reader.take("response.reset_header", "RateLimit-Reset", header_name()),
        },
        retry_after: reader.take("response.retry_after", "false", flag()),
        dynamic_metadata: reader.take("response.dynamic_metadata", "false", flag()),
        exact_durations: reader.take("response.exact_durations", "false", flag()),
    }
}
