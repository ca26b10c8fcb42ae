//! Reads what rustls does not report about a certificate: its names and its validity period.
//!
//! webpki does not read the names, because it ignores names such as `*.gateway`: it requires two labels after the star.
//! Envoy Gateway's certificates have no other names.

use std::net::IpAddr;

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The distinguished name, `CN=envoy, O=example`.
    pub subject: String,
    /// The first second of validity since the Unix epoch; negative before 1970.
    pub not_before_s: i64,
    /// The last second of validity since the Unix epoch.
    pub not_after_s: i64,
    /// The DNS names among the subject alternative names, as written; `*` may be the first label.
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<IpAddr>,
    pub uris: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct UnreadableCertificate;

impl CertificateFacts {
    /// # Errors
    /// If `certificate` is not the DER of an X.509 certificate.
    pub fn of_der(certificate: &CertificateDer<'_>) -> Result<Self, UnreadableCertificate> {
        let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| UnreadableCertificate)?;
        let names = certificate.subject_alternative_name().map_err(|_| UnreadableCertificate)?;
        let validity = certificate.validity();
        let mut facts = Self {
            subject: certificate.subject().to_string().escape_debug().to_string(),
            not_before_s: validity.not_before.timestamp(),
            not_after_s: validity.not_after.timestamp(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            uris: Vec::new(),
        };
        for name in names.iter().flat_map(|extension| &extension.value.general_names) {
            match *name {
                GeneralName::DNSName(name) => facts.dns_names.push(name.to_owned()),
                GeneralName::URI(uri) => facts.uris.push(uri.to_owned()),
                GeneralName::IPAddress(bytes) => facts.ip_addresses.extend(ip_address(bytes)),
                _ => {}
            }
        }
        Ok(facts)
    }

    /// `now_s`: seconds since the Unix epoch.
    pub fn is_valid_at(&self, now_s: u64) -> bool {
        let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
        (self.not_before_s..=self.not_after_s).contains(&now_s)
    }

    /// `now_s`: seconds since the Unix epoch.
    pub fn has_expired_at(&self, now_s: u64) -> bool {
        i64::try_from(now_s).unwrap_or(i64::MAX) > self.not_after_s
    }

    /// The alternative names as openssl prints them: `DNS:envoy, IP Address:10.0.0.7`; `no names` if there are none.
    pub fn names(&self) -> String {
        let dns = self.dns_names.iter().map(|name| format!("DNS:{name}"));
        let ip = self.ip_addresses.iter().map(|address| format!("IP:{address}"));
        let uris = self.uris.iter().map(|uri| format!("URI:{uri}"));
        let names: Vec<String> = dns.chain(ip).chain(uris).collect();
        if names.is_empty() { "no names".to_owned() } else { names.join(", ") }
    }
}

/// `None` if the length is wrong.
fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    use super::*;

    #[test]
    fn names_and_validity_are_read() {
        let names = vec!["client.local".to_owned(), "*.client.local".to_owned(), "10.0.0.7".to_owned()];
        let mut parameters = CertificateParams::new(names).expect("valid names");
        let spiffe = "spiffe://cluster.local/ns/default/sa/envoy";
        parameters.subject_alt_names.push(SanType::URI(spiffe.try_into().expect("ASCII")));
        parameters.distinguished_name.push(DnType::CommonName, "*");
        parameters.not_before = date_time_ymd(2026, 1, 1);
        parameters.not_after = date_time_ymd(2031, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let facts = CertificateFacts::of_der(certificate.der()).expect("a certificate");
        // 2026-01-01 and 2031-01-01.
        assert_eq!((facts.not_before_s, facts.not_after_s), (1_767_225_600, 1_924_992_000));
        assert_eq!(facts.dns_names, ["client.local", "*.client.local"]);
        assert_eq!(facts.ip_addresses, [IpAddr::from([10, 0, 0, 7])]);
        assert_eq!(facts.uris, [spiffe]);
        assert!(facts.subject.contains("CN=*"), "{}", facts.subject);
        let table =
            [(1_767_225_599, false), (1_767_225_600, true), (1_924_992_000, true), (1_924_992_001, false)];
        for (now_s, valid) in table {
            assert_eq!(facts.is_valid_at(now_s), valid, "at {now_s}");
            assert_eq!(facts.has_expired_at(now_s), now_s > 1_924_992_000, "at {now_s}");
        }
        assert_eq!(facts.names(), format!("DNS:client.local, DNS:*.client.local, IP:10.0.0.7, URI:{spiffe}"));
    }

    #[test]
    fn times_are_read_in_both_formats() {
        // A certificate has two digits for the years from 1950 to 2049, and four digits for all others.
        let table = [(1950, -631_152_000), (1970, 0), (2049, 2_493_072_000), (2050, 2_524_608_000)];
        for (year, seconds) in table {
            let mut parameters = CertificateParams::default();
            parameters.not_before = date_time_ymd(year, 1, 1);
            let key = KeyPair::generate().expect("a key");
            let certificate = parameters.self_signed(&key).expect("a certificate");
            let facts = CertificateFacts::of_der(certificate.der()).expect("a certificate");
            assert_eq!(facts.not_before_s, seconds, "{year}");
        }
    }

    #[test]
    fn a_subject_is_shown_with_the_usual_names_of_its_parts() {
        let mut parameters = CertificateParams::default();
        let parts = [
            (DnType::CommonName, "envoy"),
            (DnType::CustomDnType(vec![2, 5, 4, 5]), "7"),
            (DnType::CountryName, "CH"),
            (DnType::LocalityName, "Bern"),
            (DnType::StateOrProvinceName, "BE"),
            (DnType::OrganizationName, "a\nb"),
            (DnType::OrganizationalUnitName, "limits"),
        ];
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in parts {
            parameters.distinguished_name.push(kind, value);
        }
        let certificate =
            parameters.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
        let subject = CertificateFacts::of_der(certificate.der()).expect("a certificate").subject;
        assert_eq!(subject, "CN=envoy, serialNumber=7, C=CH, L=Bern, ST=BE, O=a\\nb, OU=limits");
    }

    #[test]
    fn a_certificate_that_is_cut_or_changed_anywhere_does_not_panic() {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec!["a.local".to_owned(), "::1".to_owned()]).expect("names");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let der = certificate.der().to_vec();
        for at in 0..der.len() {
            assert_eq!(
                CertificateFacts::of_der(&CertificateDer::from(&der[..at])),
                Err(UnreadableCertificate)
            );
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.clone();
                changed[at] = byte;
                let _facts = CertificateFacts::of_der(&CertificateDer::from(changed));
            }
        }
    }
}
