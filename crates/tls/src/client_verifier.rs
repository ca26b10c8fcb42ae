//! Verifies client certificates: by the CAs in a file, and by their names.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use super::crypto_provider;
use super::facts::CertificateFacts;

/// One of the names of `client_san`. A certificate matches by one of its subject alternative names; its common name is
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// Case-insensitive. A `*` as the first label in the certificate matches one label.
    Dns(String),
    Ip(IpAddr),
    /// Compared byte for byte, such as a SPIFFE ID.
    Uri(String),
}

impl ClientName {
    /// Anything with `://` is a URI; an address may be in brackets; everything else is a DNS name.
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

    /// `true` if one of the certificate's alternative names is this one.
    pub fn fits(&self, certificate: &CertificateFacts) -> bool {
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

/// Compares label by label: only the first label of `presented` may be `*`, and it matches exactly one label. A `*` in
/// `wanted` is an ordinary character that only equals itself.
fn dns_name_fits(wanted: &str, presented: &str) -> bool {
    let wanted = wanted.strip_suffix('.').unwrap_or(wanted);
    if wanted.eq_ignore_ascii_case(presented) {
        return true;
    }
    let (first, rest) = wanted.split_once('.').unwrap_or((wanted, ""));
    let (star, presented_rest) = presented.split_once('.').unwrap_or((presented, ""));
    star == "*" && !first.is_empty() && !first.contains('*') && rest.eq_ignore_ascii_case(presented_rest)
}

/// Requires a certificate from every client.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    chains: Arc<dyn ClientCertVerifier>,
    /// The certificates in the CA file.
    trusted: Vec<CertificateDer<'static>>,
    /// Empty: any name.
    names: Vec<ClientName>,
}

impl ClientVerifier {
    /// # Errors
    /// The reason why one of `trusted` cannot be a CA.
    pub(super) fn new(trusted: Vec<CertificateDer<'static>>, names: Vec<ClientName>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for authority in &trusted {
            roots.add(authority.clone()).map_err(|error| error.to_string())?;
        }
        let chains = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider()).build();
        Ok(Self { chains: chains.map_err(|error| error.to_string())?, trusted, names })
    }

    fn check_name(&self, certificate: &CertificateFacts) -> Result<(), Error> {
        if self.names.is_empty() || self.names.iter().any(|name| name.fits(certificate)) {
            return Ok(());
        }
        // rustls derives the alert (bad_certificate) from this error; `expected` only holds server names.
        let expected = ServerName::try_from("client").map_err(|_| CertificateError::NotValidForName)?;
        let presented = vec![certificate.names()];
        Err(CertificateError::NotValidForNameContext { expected, presented }.into())
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let facts = || CertificateFacts::of_der(end_entity).map_err(|_| CertificateError::BadEncoding);
        // A certificate that is itself in the file is trusted, as in Go. webpki would reject a self-signed CA
        // certificate as a client certificate.
        if self.trusted.contains(end_entity) {
            if !facts()?.is_valid_at(now.as_secs()) {
                return Err(CertificateError::Expired.into());
            }
        } else {
            let verified = self.chains.verify_client_cert(end_entity, intermediates, now);
            verified.map_err(of_another_authority)?;
        }
        self.check_name(&facts()?)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// A recreated CA keeps its name but has another key, so signatures of the old one do not verify. That is an unknown
/// issuer, not a fault of the encryption.
fn of_another_authority(error: Error) -> Error {
    match error {
        Error::InvalidCertificate(CertificateError::BadSignature) => CertificateError::UnknownIssuer.into(),
        error => error,
    }
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
        // The setting, the names of the certificate, whether it is accepted.
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
