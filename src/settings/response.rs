//! `response.*`: optional parts of an answer.

use super::parsers::{flag, one_of};
use super::reader::Reader;
use crate::transport::{HeaderStyle, ResponseOptions};

pub(super) fn response_from_reader(reader: &mut Reader) -> ResponseOptions {
    let headers = [
        ("none", HeaderStyle::None),
        ("envoy_ratelimit", HeaderStyle::EnvoyRatelimit),
        ("ietf", HeaderStyle::Ietf),
    ];
    ResponseOptions {
        headers: reader.take("response.headers", "none", one_of(headers)),
        retry_after: reader.take("response.retry_after", "false", flag()),
        dynamic_metadata: reader.take("response.dynamic_metadata", "false", flag()),
        exact_durations: reader.take("response.exact_durations", "false", flag()),
    }
}
