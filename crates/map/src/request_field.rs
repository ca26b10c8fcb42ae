//! Finds the fields of a log line in a request, so that the map that simulated a log can decide requests.

/// Where a proxy's description of a request holds a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestField {
    Method,
    /// The path with its query.
    Path,
    /// With or without a port, which maps drop.
    Host,
    /// The address of the proxy's client.
    ClientAddress,
    /// `X-Forwarded-For` as the proxy received it, without the address that the proxy adds. nginx, Caddy and Traefik
    /// log this; Envoy logs the header with its own addition.
    ReceivedForwardedFor,
    /// Name in lower case.
    Header(String),
}

/// What the log formats call fields that are not headers: Envoy's text and JSON, nginx, Caddy, Traefik, HAProxy.
const NAMES: [(&[&str], RequestField); 4] = [
    (&["method", ":method", "request_method", "request.method", "RequestMethod"], RequestField::Method),
    (
        &["path", ":path", "x-envoy-origin-path", "request_uri", "request.uri", "RequestPath"],
        RequestField::Path,
    ),
    (
        &["authority", ":authority", "host", "http_host", "request.host", "RequestAddr", "RequestHost"],
        RequestField::Host,
    ),
    (
        &["remote_addr", "request.remote_ip", "request.client_ip", "ClientHost", "client", "client_ip"],
        RequestField::ClientAddress,
    ),
];

/// Fields of answers, connections and times whose names could be request headers. Names with `_` or `.` are never
/// headers, because proxies drop headers with `_`.
const NO_HEADERS: &str = "\
    backend ClientAddr ClientPort ClientUsername code DownstreamContentSize DownstreamStatus duration \
    Duration flags frontend GzipRatio identity level logger msec msg OriginContentSize OriginDuration \
    OriginStatus Overhead protocol RequestContentSize RequestCount RequestPort RequestProtocol \
    RequestScheme RetryAttempts RouterName server ServiceName size StartUTC status time timers timestamp ts";

impl RequestField {
    /// Maps a field name of any format; `None` if requests do not have the field.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some((_, field)) = NAMES.iter().find(|(names, _)| names.contains(&name)) {
            return Some(field.clone());
        }
        if let Some(header) = name.strip_prefix("request.headers.") {
            return Self::received_header(header);
        }
        // Traefik keeps a header's capitals, so nginx's `request_time` is not the header `time`.
        let capital = |header: &&str| header.starts_with(|first: char| first.is_ascii_uppercase());
        if let Some(header) = name.strip_prefix("request_").filter(capital) {
            return Self::received_header(header);
        }
        if let Some(header) = name.strip_prefix("http_") {
            return Self::received_header(&header.replace('_', "-"));
        }
        // nginx takes it from the header `Authorization`; a request has it only if the proxy sends it.
        if name == "remote_user" {
            return Some(Self::Header("remote-user".to_owned()));
        }
        let is_header = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_known = !name.is_empty()
            && name.bytes().all(is_header)
            && NO_HEADERS.split(' ').all(|other| other != name);
        is_known.then(|| Self::Header(name.to_ascii_lowercase()))
    }

    /// A header in the log of a proxy that writes it as the client sent it.
    fn received_header(name: &str) -> Option<Self> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return None;
        }
        let name = name.to_ascii_lowercase();
        Some(match name.as_str() {
            "x-forwarded-for" => Self::ReceivedForwardedFor,
            "host" => Self::Host,
            _ => Self::Header(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_names_for_the_parts_of_a_request() {
        let header = |name: &str| Some(RequestField::Header(name.to_owned()));
        let table = [
            ("method", Some(RequestField::Method)),
            ("RequestPath", Some(RequestField::Path)),
            (":authority", Some(RequestField::Host)),
            ("http_host", Some(RequestField::Host)),
            ("request.headers.Host", Some(RequestField::Host)),
            ("RequestHost", Some(RequestField::Host)),
            ("request.client_ip", Some(RequestField::ClientAddress)),
            ("client", Some(RequestField::ClientAddress)),
            // Envoy's log includes the address that Envoy adds; the other logs do not.
            ("x-forwarded-for", header("x-forwarded-for")),
            ("http_x_forwarded_for", Some(RequestField::ReceivedForwardedFor)),
            ("request.headers.X-Forwarded-For", Some(RequestField::ReceivedForwardedFor)),
            ("request_X-Forwarded-For", Some(RequestField::ReceivedForwardedFor)),
            ("http_x_api_key", header("x-api-key")),
            ("request.headers.X-Api-Key", header("x-api-key")),
            ("request_User-Agent", header("user-agent")),
            ("User-Agent", header("user-agent")),
            ("tenant", header("tenant")),
            ("remote_user", header("remote-user")),
        ];
        for (name, field) in table {
            assert_eq!(RequestField::from_name(name), field, "{name}");
        }
    }

    #[test]
    fn what_only_an_answer_has_is_no_field_of_a_request() {
        let names = [
            "",
            "code",
            "status",
            "flags",
            "response_code",
            "bytes_sent",
            "duration",
            "DownstreamStatus",
            "RouterName",
            "request_time",
            "upstream_http_x_cost",
            "sent_http_x_cost",
            "resp_headers.X-Cost",
            "request.headers.",
            "request.remote_port",
            "http_",
            "client ip",
            "gen_ai.usage.total_tokens",
        ];
        for name in names {
            assert_eq!(RequestField::from_name(name), None, "{name}");
        }
    }
}
