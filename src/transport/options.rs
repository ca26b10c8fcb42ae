//! The optional parts of an answer.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseOptions {
    /// Rate-limit headers that Envoy adds to its response to the client.
    pub headers: HeaderStyle,
    /// `Retry-After`, when denied.
    pub retry_after: bool,
    /// Facts about the decision for Envoy's access log. The delay of a queue is sent without this option too.
    pub dynamic_metadata: bool,
    /// Durations in microseconds instead of whole seconds. Not for Envoy, which rounds fractions down.
    pub exact_durations: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderStyle {
    #[default]
    None,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`, as envoyproxy/ratelimit sends them.
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
