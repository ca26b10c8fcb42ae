//! The formats of access logs, and the fields that each has.

use super::text_layout::{ENVOY, ISTIO, NGINX};

/// The format of the lines of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Recorded requests, as `replay` reads them. Needs no map.
    Jsonl,
    /// Envoy's default text.
    Envoy,
    /// Istio's default text.
    Istio,
    /// One JSON object per line with the keys of Envoy Gateway's default.
    EnvoyJson,
    /// `combined`, optionally followed by `$msec` and `$request_time`.
    Nginx,
    /// `option httplog`, with or without a syslog header.
    Haproxy,
    /// Comma-separated values; the first line has the names of the fields.
    Csv,
    /// One JSON object per line.
    Json,
}

/// Fields of Envoy's JSON under the names that the text formats have, so that one map fits both.
const ENVOY_JSON_ALIASES: [(&str, &str); 4] = [
    ("path", "x-envoy-origin-path"),
    ("code", "response_code"),
    ("flags", "response_flags"),
    ("authority", ":authority"),
];

/// The fields of `option httplog`.
pub(super) const HAPROXY_FIELDS: [&str; 14] = [
    "client",
    "accept_date",
    "frontend",
    "backend",
    "server",
    "timers",
    "code",
    "bytes_sent",
    "termination_state",
    "request_headers",
    "response_headers",
    "method",
    "path",
    "protocol",
];

impl Format {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Jsonl,
        Self::Envoy,
        Self::Istio,
        Self::EnvoyJson,
        Self::Nginx,
        Self::Haproxy,
        Self::Csv,
        Self::Json,
    ];

    /// The value of `--format`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Envoy => "envoy",
            Self::Istio => "istio",
            Self::EnvoyJson => "envoy-json",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Csv => "csv",
            Self::Json => "json",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The names of all fields; `None` if they are those of the log's own lines.
    pub(super) fn fields(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Jsonl => Some(Vec::new()),
            Self::Envoy => Some(ENVOY.fields()),
            Self::Istio => Some(ISTIO.fields()),
            Self::Nginx => Some(NGINX.fields()),
            Self::Haproxy => Some(HAPROXY_FIELDS.to_vec()),
            Self::EnvoyJson | Self::Csv | Self::Json => None,
        }
    }

    /// The name of a field in the lines themselves.
    pub(super) fn own_name(self, field: &str) -> &str {
        let is_alias = |(alias, _): &&(&str, &str)| self == Self::EnvoyJson && *alias == field;
        ENVOY_JSON_ALIASES.iter().find(is_alias).map_or(field, |(_, own)| own)
    }

    /// The field with the time at which the request began, where the format has one.
    pub(crate) fn time_field(self) -> Option<&'static str> {
        match self {
            Self::Envoy | Self::Istio | Self::EnvoyJson => Some("start_time"),
            Self::Nginx => Some("time_local"),
            Self::Haproxy => Some("accept_date"),
            Self::Jsonl | Self::Csv | Self::Json => None,
        }
    }
}
