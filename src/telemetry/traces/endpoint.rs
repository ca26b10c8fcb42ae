//! The address of a collector.

use std::fmt;

use tokio_rustls::rustls::pki_types::ServerName;
use url::Url;

/// `http://host:port/path` or `https://host:port/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    pub(super) has_tls: bool,
    pub(super) host: ServerName<'static>,
    pub(super) port: u16,
    /// Of HTTP. Begins with a slash.
    pub(super) path: String,
}

/// Where a collector takes spans by HTTP, unless the endpoint names another path.
const TRACES_PATH: &str = "/v1/traces";

impl OtlpEndpoint {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let has_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let has_more = !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some();
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let host = ServerName::try_from(host).ok()?;
        let port = url.port_or_known_default().filter(|&port| port > 0)?;
        let path = match url.path() {
            "" | "/" => TRACES_PATH,
            path => path,
        };
        (!has_more).then(|| Self { has_tls, host, port, path: path.to_owned() })
    }

    /// `host:port`, with brackets around an address of IPv6.
    pub(super) fn authority(&self) -> String {
        let host = self.host.to_str();
        if host.contains(':') { format!("[{host}]:{}", self.port) } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_a_user() {
        let cases = [
            ("http://collector:4318", Some("http://collector:4318/v1/traces")),
            ("https://10.0.0.1:4318/", Some("https://10.0.0.1:4318/v1/traces")),
            ("https://[::1]:1/otlp/traces", Some("https://[::1]:1/otlp/traces")),
            ("https://collector", Some("https://collector:443/v1/traces")),
            ("collector:4318", None),
            ("ftp://collector", None),
            ("http://u:p@collector", None),
            ("http://collector:0", None),
            ("http://collector/?a=b", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let parsed = OtlpEndpoint::parse(text).map(|endpoint| endpoint.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
