//! Where spans are sent, and how they describe the process.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use strum::{EnumString, VariantNames};

use crate::post::HttpTarget;

/// Path for spans over HTTP, unless the endpoint names one.
const TRACES_PATH: &str = "/v1/traces";

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum OtlpProtocol {
    /// POST with a protobuf body.
    Http,
    Grpc,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesOptions {
    pub endpoint: HttpTarget,
    pub protocol: OtlpProtocol,
    pub headers: OtlpHeaders,
    /// For one batch of spans.
    pub timeout: Duration,
    /// PEM file of trusted CAs; `None`: system roots.
    pub ca_file: Option<PathBuf>,
    /// Share of the traces that start here, in millionths. A caller's sampling decision is kept.
    pub sampled_ppm: u32,
    pub service: ServiceIdentity,
}

/// Attributes of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceIdentity {
    pub name: String,
    pub namespace: Option<String>,
    /// `None`: a random one.
    pub instance_id: Option<String>,
}

/// Headers of each request to the collector. Their values are secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpHeaders(pub HeaderMap);

impl OtlpHeaders {
    /// Parses `name=value,name=value` with percent-encoded values, the syntax of `OTEL_EXPORTER_OTLP_HEADERS`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut headers = HeaderMap::new();
        for pair in text.split(',').filter(|_| !text.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            let name = HeaderName::try_from(name.trim()).ok()?;
            let mut value = HeaderValue::try_from(percent_decoded(value.trim())?).ok()?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        Some(Self(headers))
    }
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            decoded.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            decoded.push(first);
            rest = after;
        }
    }
    Some(decoded)
}

/// `http://host:port/path` or `https://host:port/path`, without a query.
pub fn otlp_endpoint(text: &str) -> Option<HttpTarget> {
    let mut target = HttpTarget::parse(text).filter(|target| target.query.is_none())?;
    if target.path == "/" {
        TRACES_PATH.clone_into(&mut target.path);
    }
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_opentelemetry_spells_them() {
        let headers = OtlpHeaders::parse("api-key=a%20b,x-tenant = edge").expect("valid").0;
        assert_eq!(headers["api-key"], "a b");
        assert_eq!(headers["x-tenant"], "edge");
        assert!(!format!("{headers:?}").contains("edge"), "the values are secret");
        assert_eq!(OtlpHeaders::parse(""), Some(OtlpHeaders::default()));
        for text in ["a", "a b=c", "a=%2", "a=%zz", "a=%0a", "a=b,"] {
            assert_eq!(OtlpHeaders::parse(text), None, "{text}");
        }
    }

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
            let parsed = otlp_endpoint(text).map(|endpoint| endpoint.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
