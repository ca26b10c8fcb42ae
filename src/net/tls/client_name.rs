//! The names that a client certificate may have.

use std::fmt;
use std::net::IpAddr;

use tls::CertificateFacts;

/// One of the names of `client_san`. A certificate fits if one of its subject alternative names does; its common name
/// counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// Without regard to case. A `*` as first label in the certificate stands for one label.
    Dns(String),
    Ip(IpAddr),
    /// Equal byte for byte, such as a SPIFFE ID.
    Uri(String),
}

impl ClientName {
    /// A text with `://` is a URI; an address may be in brackets; everything else is a DNS name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        if text.contains("://") {
            return Some(Self::Uri(text.to_owned()));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        match bare.parse() {
            Ok(address) => Some(Self::Ip(address)),
            Err(_) => (!text.starts_with('.')).then(|| Self::Dns(text.to_owned())),
        }
    }

    pub(super) fn fits(&self, certificate: &CertificateFacts) -> bool {
        match self {
            Self::Dns(name) => certificate.dns_names.iter().any(|presented| dns_name_fits(name, presented)),
            Self::Ip(address) => certificate.ip_addresses.contains(address),
            Self::Uri(uri) => certificate.uris.contains(uri),
        }
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(text) | Self::Uri(text) => f.write_str(text),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

/// Label by label: only the first label of `presented` may be `*`, and it stands for exactly one label. A `*` in
/// `wanted` is an ordinary character: it equals itself.
fn dns_name_fits(wanted: &str, presented: &str) -> bool {
    let wanted = wanted.strip_suffix('.').unwrap_or(wanted);
    if wanted.eq_ignore_ascii_case(presented) {
        return true;
    }
    let (first, rest) = wanted.split_once('.').unwrap_or((wanted, ""));
    let (star, presented_rest) = presented.split_once('.').unwrap_or((presented, ""));
    star == "*" && !first.is_empty() && !first.contains('*') && rest.eq_ignore_ascii_case(presented_rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(names: &[&str]) -> CertificateFacts {
        let mut facts = CertificateFacts {
            subject: "CN=client.local".to_owned(),
            not_before_s: 0,
            not_after_s: 0,
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            uris: Vec::new(),
        };
        for name in names {
            match name.split_once(':').expect("a kind and a name") {
                ("DNS", name) => facts.dns_names.push(name.to_owned()),
                ("URI", uri) => facts.uris.push(uri.to_owned()),
                (_, address) => facts.ip_addresses.push(address.parse().expect("an address")),
            }
        }
        facts
    }

    #[test]
    fn names_fit_as_in_envoyproxy_ratelimit_and_uris_too() {
        let spiffe = "spiffe://cluster.local/ns/default/sa/envoy";
        let spiffe_name = format!("URI:{spiffe}");
        // The setting, the names of the certificate, whether it is admitted.
        let table: [(&str, &[&str], bool); 23] = [
            ("client.local", &["DNS:client.local"], true),
            ("CLIENT.local", &["DNS:client.local"], true),
            ("client.local", &["DNS:CLIENT.LOCAL"], true),
            ("client.local.", &["DNS:client.local"], true),
            ("client.local", &["DNS:*.client.local"], false), // a star is one label, not none
            ("x.client.local", &["DNS:*.client.local"], true),
            ("X.client.local", &["DNS:*.Client.local"], true),
            ("x.y.client.local", &["DNS:*.client.local"], false), // nor two
            ("*.client.local", &["DNS:*.client.local"], true),
            ("*.client.local", &["DNS:client.local"], false),
            ("*.client.local", &["DNS:*.*.local"], false),
            ("x.client.local", &["DNS:x.*.local"], false), // only the first label
            ("xy.client.local", &["DNS:x*.client.local"], false), // only a whole label
            ("envoy.gateway", &["DNS:*.gateway"], true),   // as Envoy Gateway makes them
            ("client.other", &["DNS:client.local"], false),
            ("client.local", &[], false), // the common name counts for nothing
            ("client.local", &[&spiffe_name], false),
            (spiffe, &[&spiffe_name], true),
            (spiffe, &["DNS:other", "URI:spiffe://cluster.local/ns/default/sa/envoys"], false),
            ("10.0.0.7", &["IP:10.0.0.7"], true),
            ("10.0.0.7", &["DNS:10.0.0.7"], false),
            ("[::1]", &["IP:::1"], true),
            ("10.0.0.7", &["DNS:client.local"], false),
        ];
        for (setting, names, fits) in table {
            let name = ClientName::parse(setting).expect("a name");
            assert_eq!(name.fits(&certificate(names)), fits, "{setting}: {names:?}");
        }
    }

    #[test]
    fn a_name_is_visible_ascii() {
        for text in ["", " ", "a b", "é.local", ".local"] {
            assert_eq!(ClientName::parse(text), None, "{text:?}");
        }
    }
}
