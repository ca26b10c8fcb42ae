//! Certificates for tests: a certificate authority, and the certificates that it signs, as PEM files.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;

fn named(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).expect("good names")
}

/// A certificate authority and its files.
pub struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        Self::with(CertificateParams::new(Vec::new()).expect("no names"))
    }

    /// An authority whose own certificate has these names, so that a server can show it.
    pub fn for_server(names: &[&str]) -> Self {
        Self::with(named(names))
    }

    /// The same, valid in the past only.
    pub fn expired_for_server(names: &[&str]) -> Self {
        let mut parameters = named(names);
        parameters.not_before = date_time_ymd(2020, 1, 1);
        parameters.not_after = date_time_ymd(2021, 1, 1);
        Self::with(parameters)
    }

    fn with(mut parameters: CertificateParams) -> Self {
        parameters.distinguished_name.push(DnType::CommonName, "authority of the test");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("a certificate");
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::write(directory.path().join("ca.pem"), issuer.as_ref().pem()).expect("room for a file");
        Self { directory, issuer }
    }

    /// The certificate of the authority and its key, for a server that shows it.
    pub fn own_identity(&self) -> Identity {
        let key = self.path("ca", "key");
        std::fs::write(&key, self.issuer.key().serialize_pem()).expect("room for a file");
        Identity { certificate: self.file(), key }
    }

    /// The certificate of the authority.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Signs a certificate for these names (host names or IP addresses).
    pub fn certificate_for(&self, names: &[&str]) -> Identity {
        self.certificate(&names.join("-"), names, |_| {})
    }

    /// Signs a certificate for these names, with changes. `stem` is the name of its files.
    pub fn certificate(
        &self,
        stem: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(names).expect("good names");
        // A certificate whose subject equals its issuer would count as self-signed.
        parameters.distinguished_name.push(DnType::CommonName, stem);
        change(&mut parameters);
        let certificate = parameters.signed_by(&key, &self.issuer).expect("a certificate");
        let identity = Identity { certificate: self.path(stem, "crt"), key: self.path(stem, "key") };
        std::fs::write(&identity.certificate, certificate.pem()).expect("room for a file");
        std::fs::write(&identity.key, key.serialize_pem()).expect("room for a file");
        identity
    }

    /// The PEM of the authority.
    pub fn pem(&self) -> String {
        self.issuer.as_ref().pem()
    }

    fn path(&self, stem: &str, extension: &str) -> PathBuf {
        let path: &Path = self.directory.path();
        path.join(format!("{stem}.{extension}"))
    }
}
