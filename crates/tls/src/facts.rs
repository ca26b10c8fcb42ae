//! The contents of a certificate that rustls does not report: its names and its period of validity.
//!
//! The names are not left to webpki, which ignores names such as `*.gateway`, and Envoy Gateway's certificates have no
//! other ones: webpki asks for two labels after the star.

use std::borrow::Cow;
use std::net::IpAddr;

use tokio_rustls::rustls::pki_types::CertificateDer;

use super::der::{Elements, GENERALIZED_TIME, INTEGER, OBJECT_ID, OCTET_STRING, SEQUENCE, UTC_TIME};

/// 2.5.29.17, subjectAltName.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// The version, an element of its own.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
// The kinds of alternative names.
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const IP_ADDRESS: u8 = 0x87;

/// The attributes of names that are shown under their names: 2.5.4 and this number.
const ATTRIBUTES: [(u8, &str); 7] =
    [(3, "CN"), (5, "serialNumber"), (6, "C"), (7, "L"), (8, "ST"), (10, "O"), (11, "OU")];

/// The names and the period of validity of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The distinguished name, `CN=envoy, O=example`.
    pub subject: String,
    /// The first second at which it is valid, since the Unix epoch; negative before 1970.
    pub not_before_s: i64,
    /// The last second at which it is valid, since the Unix epoch.
    pub not_after_s: i64,
    /// The DNS names of the subject alternative names, as written; `*` may be the first label.
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<IpAddr>,
    pub uris: Vec<String>,
}

/// Not an X.509 certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct UnreadableCertificate;

impl CertificateFacts {
    /// # Errors
    /// When `certificate` is not the DER of an X.509 certificate.
    pub fn of_der(certificate: &CertificateDer<'_>) -> Result<Self, UnreadableCertificate> {
        facts_of(certificate).ok_or(UnreadableCertificate)
    }

    /// Whether it is valid at `now_s`, seconds since the Unix epoch.
    #[must_use]
    pub fn is_valid_at(&self, now_s: u64) -> bool {
        let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
        (self.not_before_s..=self.not_after_s).contains(&now_s)
    }

    /// Whether its period of validity is over at `now_s`, seconds since the Unix epoch.
    #[must_use]
    pub fn has_expired_at(&self, now_s: u64) -> bool {
        i64::try_from(now_s).unwrap_or(i64::MAX) > self.not_after_s
    }

    /// The alternative names as in the output of openssl: `DNS:envoy, IP Address:10.0.0.7`; `no names` without any.
    #[must_use]
    pub fn names(&self) -> String {
        let dns = self.dns_names.iter().map(|name| format!("DNS:{name}"));
        let ip = self.ip_addresses.iter().map(|address| format!("IP:{address}"));
        let uris = self.uris.iter().map(|uri| format!("URI:{uri}"));
        let names: Vec<String> = dns.chain(ip).chain(uris).collect();
        if names.is_empty() { "no names".to_owned() } else { names.join(", ") }
    }
}

/// Reads the certificate up to its extensions (RFC 5280, section 4.1).
fn facts_of(certificate: &[u8]) -> Option<CertificateFacts> {
    let mut signed = Elements(certificate).inside(SEQUENCE)?;
    let mut fields = signed.inside(SEQUENCE)?;
    fields.content_of(VERSION);
    fields.content_of(INTEGER)?;
    let _signature = fields.content_of(SEQUENCE)?;
    let _issuer = fields.content_of(SEQUENCE)?;
    let mut validity = fields.inside(SEQUENCE)?;
    let subject = fields.inside(SEQUENCE)?;
    let mut facts = CertificateFacts {
        subject: subject.filter_map(|part| attribute(part.content)).collect::<Vec<_>>().join(", "),
        not_before_s: seconds_of(&mut validity)?,
        not_after_s: seconds_of(&mut validity)?,
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        uris: Vec::new(),
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    for name in alternative_names(fields).into_iter().flatten() {
        match name.tag {
            DNS_NAME => facts.dns_names.extend(text(name.content)),
            URI => facts.uris.extend(text(name.content)),
            IP_ADDRESS => facts.ip_addresses.extend(ip_address(name.content)),
            _ => {}
        }
    }
    Some(facts)
}

/// `fields`: those after the subject.
fn alternative_names(mut fields: Elements<'_>) -> Option<Elements<'_>> {
    let extensions = fields.find(|field| field.tag == EXTENSIONS)?;
    let mut extensions = Elements(extensions.content).inside(SEQUENCE)?;
    extensions.find_map(|extension| {
        let mut parts = Elements(extension.content);
        let is_wanted = parts.content_of(OBJECT_ID)? == ALTERNATIVE_NAMES;
        let value = parts.find(|part| part.tag == OCTET_STRING)?;
        if is_wanted { Elements(value.content).inside(SEQUENCE) } else { None }
    })
}

/// `CN=envoy` of a relative distinguished name, which has one attribute in practice.
fn attribute(name: &[u8]) -> Option<String> {
    let mut attribute = Elements(name).inside(SEQUENCE)?;
    let kind = attribute.content_of(OBJECT_ID)?;
    let value: Cow<'_, str> = String::from_utf8_lossy(attribute.next()?.content);
    let number = kind.strip_prefix(&[0x55, 0x04])?.first()?;
    let known = ATTRIBUTES.iter().find(|(known, _)| known == number)?;
    Some(format!("{}={}", known.1, value.escape_debug()))
}

/// The next element as seconds since the Unix epoch: `YYMMDDHHMMSSZ` or, from 2050 on, `YYYYMMDDHHMMSSZ`.
fn seconds_of(times: &mut Elements<'_>) -> Option<i64> {
    let time = times.next()?;
    let digits = time.content.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let (year_digits, rest) = match (time.tag, digits.len()) {
        (UTC_TIME, 12) => digits.split_at(2),
        (GENERALIZED_TIME, 14) => digits.split_at(4),
        _ => return None,
    };
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let year = match (time.tag, number(year_digits)) {
        (UTC_TIME, year @ ..50) => 2000 + year,
        (UTC_TIME, year) => 1900 + year,
        (_, year) => year,
    };
    let mut parts = rest.chunks(2).map(number);
    let [month, day, hour, minute, second] = [(); 5].map(|()| parts.next().unwrap_or_default());
    let is_a_time =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    is_a_time.then(|| days_since_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// In the Gregorian calendar. Years begin in March here, so that the leap day is the last day of a year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    // 719,468 days from 0000-03-01 to 1970-01-01.
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// The address, unless its length is wrong.
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
        // The first year of the short format is 1950, the last 2049.
        let table = [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "20500101000000Z", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "7001010000+0Z", None),
            (INTEGER, "700101000000Z", None),
        ];
        for (tag, text, seconds) in table {
            let length = u8::try_from(text.len()).expect("short");
            let bytes = [&[tag, length], text.as_bytes()].concat();
            assert_eq!(seconds_of(&mut Elements(&bytes)), seconds, "{text}");
        }
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
