//! How the client reaches its server and identifies itself. Validated: nothing can fail later, except reading the named
//! files.

use std::collections::BTreeMap;
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use tls::ClientTls;
use tokio_rustls::rustls::pki_types::ServerName;

/// Headers that gRPC itself sets.
const RESERVED_HEADERS: [&str; 5] = ["content-type", "host", "te", "user-agent", "connection"];

/// The server and this client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsOptions {
    pub address: ServerAddress,
    pub identity: NodeIdentity,
    /// Sent with each stream. Values can be credentials: they are marked as sensitive.
    pub headers: HeaderMap,
    /// `None`: clear text. The files are read at each connect, and watched while a stream is open.
    pub tls: Option<ClientTls>,
    /// For one attempt: DNS, TCP, TLS and the first HTTP/2 frames.
    pub connect_timeout: Duration,
    pub backoff: BackoffOptions,
    /// Maximum answer.
    pub max_message_bytes: usize,
    /// `true` if the process is ready before it has rules.
    pub start_without_rules: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub host: ServerName<'static>,
    pub port: u16,
}

/// How this client identifies itself to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    pub id: String,
    pub metadata: BTreeMap<String, String>,
}

/// Pauses between attempts: they double from `initial` up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffOptions {
    pub initial: Duration,
    pub max: Duration,
    /// `true` if a pause is shortened at random, by half at most.
    pub jitter: bool,
}

impl ServerAddress {
    /// Parses `host:port`; an IPv6 address is in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) => ServerName::IpAddress(address.parse::<std::net::Ipv6Addr>().ok()?.into()),
            None => ServerName::try_from(host.to_owned()).ok().filter(|_| !host.contains(':'))?,
        };
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some(Self { host, port })
    }

    /// In the syntax of [`Self::parse`].
    pub fn authority(&self) -> String {
        format!("{}:{}", authority_host(&self.host), self.port)
    }
}

/// A host in a URL: an IPv6 address is in brackets.
fn authority_host(host: &ServerName<'_>) -> String {
    let text = host.to_str();
    if text.contains(':') { format!("[{text}]") } else { text.into_owned() }
}

impl NodeIdentity {
    /// Parses `key=value,key=value`; the first `=` of a pair separates key and value.
    pub fn parse_metadata(text: &str) -> Option<BTreeMap<String, String>> {
        let pairs = text.split(',').filter(|_| !text.is_empty());
        pairs
            .map(|pair| {
                let (key, value) = pair.trim().split_once('=')?;
                (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
            })
            .collect()
    }
}

/// Parses `name:value,name:value`. `None` for a header that gRPC sets itself.
pub fn parse_headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        let (name, value) = pair.split_once(':')?;
        let name: HeaderName = name.trim().parse().ok()?;
        let mut value: HeaderValue = value.trim().parse().ok()?;
        let is_reserved = RESERVED_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("grpc-");
        // Values of such headers are base64 bytes, which gRPC callers do not write themselves.
        if is_reserved || name.as_str().ends_with("-bin") || value.to_str().is_err() {
            return None;
        }
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let table = [
            ("envoy-gateway:18001", Some("envoy-gateway:18001")),
            ("envoy-gateway.ns.svc.cluster.local:1", Some("envoy-gateway.ns.svc.cluster.local:1")),
            ("10.0.0.1:18000", Some("10.0.0.1:18000")),
            ("[::1]:18000", Some("[::1]:18000")),
            ("::1:18000", None),
            ("envoy-gateway", None),
            (":18000", None),
            ("envoy-gateway:0", None),
            ("envoy-gateway:65536", None),
            ("http://envoy-gateway:1", None),
            ("", None),
        ];
        for (text, expected) in table {
            let parsed = ServerAddress::parse(text).map(|address| address.authority());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn metadata_are_pairs_of_which_the_first_equals_sign_separates() {
        let metadata = NodeIdentity::parse_metadata("key1=val1,key2=a=b,k3=").expect("pairs");
        let pairs: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("k3", ""), ("key1", "val1"), ("key2", "a=b")]);
        assert_eq!(NodeIdentity::parse_metadata(""), Some(BTreeMap::new()));
        assert_eq!(NodeIdentity::parse_metadata("key"), None);
        assert_eq!(NodeIdentity::parse_metadata("=value"), None);
    }

    #[test]
    fn headers_are_pairs_and_those_of_grpc_are_refused() {
        let headers = parse_headers("X-One:1, x-two: two words").expect("pairs");
        assert_eq!(headers.get("x-one").map(HeaderValue::as_bytes), Some(&b"1"[..]));
        assert_eq!(headers.get("x-two").map(HeaderValue::as_bytes), Some(&b"two words"[..]));
        assert!(!format!("{headers:?}").contains("two words"), "values may be credentials");
        for refused in ["x", "te:trailers", "grpc-timeout:1S", "a b:c", "x-bin:1", "x-one:\u{e9}"] {
            assert_eq!(parse_headers(refused), None, "{refused}");
        }
    }
}
