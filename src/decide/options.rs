//! The optional parts of an answer.

use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseOptions {
    /// Rate-limit headers that Envoy adds to its response to the client.
    pub headers: HeaderStyle,
    /// The names of the headers of [`HeaderStyle::EnvoyRatelimit`].
    pub header_names: HeaderNames,
    /// `Retry-After`, when denied.
    pub retry_after: bool,
    /// Facts about the decision for Envoy's access log. The delay of a queue is sent without this option too.
    pub dynamic_metadata: bool,
    /// Durations in microseconds instead of whole seconds. Not for Envoy, which rounds fractions down.
    pub exact_durations: bool,
}

/// The names of the three headers of envoyproxy/ratelimit, as they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    pub limit: Arc<str>,
    pub remaining: Arc<str>,
    pub reset: Arc<str>,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".into(),
            remaining: "RateLimit-Remaining".into(),
            reset: "RateLimit-Reset".into(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderStyle {
    #[default]
    None,
    /// Limit, remaining units and reset of one limit, as envoyproxy/ratelimit sends them.
    EnvoyRatelimit,
    /// `RateLimit-Policy` and `RateLimit` of the IETF draft.
    Ietf,
}

/// The answer to a request that cannot be decided because it is not valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalid {
    /// An error. Envoy admits the request unless `failure_mode_deny` is set.
    #[default]
    Error,
    /// OVER_LIMIT.
    Deny,
}
