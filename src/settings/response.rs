//! `response.*`: what answers carry beyond the statuses.

use super::kinds::{flag, one_of};
use super::reader::Reader;

/// What answers carry beyond the statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// `response.headers`: which rate-limit headers are added for the caller's client.
    pub headers: ResponseHeaders,
    /// `response.retry_after`: whether a denial adds `Retry-After`.
    pub retry_after: bool,
    /// `response.dynamic_metadata`: whether the answer carries the request and the metadata of its rules.
    pub dynamic_metadata: bool,
    /// `response.exact_durations`: whether durations in statuses carry their microseconds; otherwise they are rounded
    /// up to whole seconds, which is all that Envoy reads.
    pub exact_durations: bool,
}

/// Which rate-limit headers are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseHeaders {
    /// None: Envoy can make its own from the statuses.
    None,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`, as envoyproxy/ratelimit fills them.
    EnvoyRatelimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft.
    Ietf,
}

impl Response {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let headers = [
            ("none", ResponseHeaders::None),
            ("envoy_ratelimit", ResponseHeaders::EnvoyRatelimit),
            ("ietf", ResponseHeaders::Ietf),
        ];
        Self {
            headers: reader.read("response.headers", "none", one_of(headers)),
            retry_after: reader.read("response.retry_after", "false", flag()),
            dynamic_metadata: reader.read("response.dynamic_metadata", "false", flag()),
            exact_durations: reader.read("response.exact_durations", "false", flag()),
        }
    }
}
