//! Reads a PEM file, and finds the certificates or the private key in it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The authorities of a whole operating system take about a quarter of this.
const MAX_PEM_BYTES: u64 = 1024 * 1024;

/// A PEM file that was read.
#[derive(Clone)]
pub struct PemFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct PemError {
    pub path: PathBuf,
    pub fault: PemFault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemFault {
    /// The text of the system, such as `No such file or directory`.
    #[error("{0}")]
    Unreadable(String),
    /// Opening a pipe could wait for ever.
    #[error("not a regular file")]
    NotAFile,
    #[error("larger than {MAX_PEM_BYTES} bytes")]
    TooLarge,
    #[error("not valid PEM: {0}")]
    Malformed(String),
    #[error("it contains no certificate (BEGIN CERTIFICATE)")]
    NoCertificate,
    #[error("it contains no private key (BEGIN PRIVATE KEY, BEGIN RSA PRIVATE KEY or BEGIN EC PRIVATE KEY)")]
    NoKey,
    /// There is no place to enter a pass phrase.
    #[error("its private key is encrypted: decrypt it with `openssl pkey`")]
    EncryptedKey,
    /// What rustls says about a certificate or a key.
    #[error("{0}")]
    Unusable(String),
}

impl std::fmt::Debug for PemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PemFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl PemFile {
    /// Reads the file. Blocks as long as the file system does.
    ///
    /// # Errors
    /// When it cannot be read, is too large, or is not a regular file.
    pub fn open(path: &Path) -> Result<Self, PemError> {
        let failed = |fault| PemError { path: path.to_owned(), fault };
        let unreadable = |error: std::io::Error| failed(PemFault::Unreadable(error.to_string()));
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(failed(PemFault::NotAFile));
        }
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_PEM_BYTES) {
            return Err(failed(PemFault::TooLarge));
        }
        Ok(Self { path: path.to_owned(), bytes })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// An error about this file.
    #[must_use]
    pub fn error(&self, fault: PemFault) -> PemError {
        PemError { path: self.path.clone(), fault }
    }

    /// All certificates, at least one.
    ///
    /// # Errors
    /// When there is none, or the PEM is malformed.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match read {
            Ok(certificates) if certificates.is_empty() => Err(self.error(PemFault::NoCertificate)),
            read => read.map_err(|error| self.error(malformed(&error))),
        }
    }

    /// The first private key: PKCS#8, PKCS#1 (RSA) or SEC1 (EC).
    ///
    /// # Errors
    /// When there is none, it is encrypted, or the PEM is malformed.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        let has = |text: &[u8]| self.bytes.windows(text.len()).any(|part| part == text);
        // The second is a header of the older format.
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            return Err(self.error(PemFault::EncryptedKey));
        }
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => self.error(PemFault::NoKey),
            error => self.error(malformed(&error)),
        })
    }
}

/// The parser quotes lines as lists of bytes, and lines of a key file must not be shown at all.
fn malformed(error: &pem::Error) -> PemFault {
    let reason = match error {
        pem::Error::MissingSectionEnd { .. } => "a BEGIN line without its END line",
        pem::Error::IllegalSectionStart { .. } => "a malformed BEGIN line",
        pem::Error::Base64Decode(_) => "its base64 cannot be decoded",
        _ => "it cannot be parsed",
    };
    PemFault::Malformed(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(text: &[u8]) -> (tempfile::NamedTempFile, PemFile) {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("room for a file");
        let read = PemFile::open(file.path()).expect("a file");
        (file, read)
    }

    #[test]
    fn what_is_missing_is_named() {
        let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";
        let cut = "-----BEGIN CERTIFICATE-----\nMAA=\n";
        let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMAA=\n-----END RSA PRIVATE KEY-----\n";
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
        // The file; its certificates; its key.
        let table = [
            (certificate, "1", "it contains no private key"),
            (key, "it contains no certificate", "a key"),
            ("", "it contains no certificate", "it contains no private key"),
            ("hello", "it contains no certificate", "it contains no private key"),
            (cut, "not valid PEM: a BEGIN line without", "not valid PEM: a BEGIN line without"),
            (
                "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
                "not valid PEM: its base64",
                "not",
            ),
            (encrypted, "it contains no certificate", "its private key is encrypted"),
            (old, "not valid PEM: its base64", "its private key is encrypted"),
        ];
        for (text, certificates, private_key) in table {
            let (_file, file) = file_of(text.as_bytes());
            let found =
                file.certificates().map_or_else(|error| error.fault.to_string(), |all| all.len().to_string());
            assert!(found.starts_with(certificates), "{text}: {found}");
            let found =
                file.private_key().map_or_else(|error| error.fault.to_string(), |_| "a key".to_owned());
            assert!(found.starts_with(private_key), "{text}: {found}");
        }
    }

    #[test]
    fn only_a_regular_file_of_some_size_is_read() {
        let missing = PemFile::open(Path::new("/nowhere/tls.crt")).expect_err("no such file");
        assert!(missing.to_string().starts_with("/nowhere/tls.crt: No such file"), "{missing}");
        let folder = PemFile::open(Path::new("/")).expect_err("a folder");
        assert_eq!(folder.fault, PemFault::NotAFile);
        let large = tempfile::NamedTempFile::new().expect("a temporary file");
        large.as_file().set_len(MAX_PEM_BYTES + 1).expect("a sparse file");
        assert_eq!(PemFile::open(large.path()).expect_err("too large").fault, PemFault::TooLarge);
    }
}
