//! Where spans are sent, and what they say of the process.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::endpoint::OtlpEndpoint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// POST with a body in protobuf.
    Http,
    Grpc,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesOptions {
    pub endpoint: OtlpEndpoint,
    pub protocol: OtlpProtocol,
    pub headers: OtlpHeaders,
    /// For one batch of spans.
    pub timeout: Duration,
    /// The authorities to trust, in a PEM file; those of the system, if there is none.
    pub ca_file: Option<PathBuf>,
    /// The share of the traces that begin here, in millionths. A caller's decision is kept.
    pub sampled_ppm: u32,
    pub service: ServiceIdentity,
}

/// The attributes of the process.
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
    /// Parses `name=value,name=value` with percent-encoded values, as `OTEL_EXPORTER_OTLP_HEADERS` is spelt.
    #[must_use]
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
}
