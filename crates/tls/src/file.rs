//! Reads PEM files with certificates or a private key, and files whose first line is a secret.

use std::fmt;
use std::path::{Path, PathBuf};

use base::read_file;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The CAs of a whole operating system take about a quarter of this.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Far above the length of a password, token or key, and below the limit for request headers.
pub const MAX_SECRET_BYTES: usize = 4_096;

#[derive(Clone)]
pub struct PemFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    pub(super) path: PathBuf,
    pub fault: FileFault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// The system's message, such as `No such file or directory`, or that the file is too large or not a regular file.
    #[error("{0}")]
    Unreadable(String),
    #[error("not valid PEM: {0}")]
    Malformed(String),
    #[error("contains no certificate (BEGIN CERTIFICATE)")]
    NoCertificate,
    #[error("contains no private key (BEGIN PRIVATE KEY, BEGIN RSA PRIVATE KEY or BEGIN EC PRIVATE KEY)")]
    NoKey,
    /// There is nowhere to enter a passphrase.
    #[error("the private key is encrypted; decrypt it with `openssl pkey`")]
    EncryptedKey,
    /// The content is unusable: what rustls says about a certificate or key, or the length of a secret.
    #[error("{0}")]
    Unusable(String),
}

impl FileError {
    pub fn unusable(path: &Path, reason: impl ToString) -> Self {
        Self { path: path.to_owned(), fault: FileFault::Unusable(reason.to_string()) }
    }
}

impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl PemFile {
    /// Reads the file. Blocks on the file system.
    ///
    /// # Errors
    /// If the file cannot be read, is too large, or is not a regular file.
    pub(super) fn open(path: &Path) -> Result<Self, FileError> {
        Ok(Self { path: path.to_owned(), bytes: read_bytes(path)? })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn unusable(&self, reason: impl ToString) -> FileError {
        FileError::unusable(&self.path, reason)
    }

    fn error(&self, fault: FileFault) -> FileError {
        FileError { path: self.path.clone(), fault }
    }

    /// All certificates, at least one.
    ///
    /// # Errors
    /// If there is none, or the PEM is malformed.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, FileError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match read {
            Ok(certificates) if certificates.is_empty() => Err(self.error(FileFault::NoCertificate)),
            read => read.map_err(|error| self.error(malformed(&error))),
        }
    }

    /// The first private key: PKCS#8, PKCS#1 (RSA) or SEC1 (EC).
    ///
    /// # Errors
    /// If there is none, it is encrypted, or the PEM is malformed.
    pub(super) fn private_key(&self) -> Result<PrivateKeyDer<'static>, FileError> {
        let has = |text: &[u8]| self.bytes.windows(text.len()).any(|part| part == text);
        // The second is a header of the older format.
        if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
            return Err(self.error(FileFault::EncryptedKey));
        }
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => self.error(FileFault::NoKey),
            error => self.error(malformed(&error)),
        })
    }
}

/// Reads a password, token or key: the first line of a file, at most [`MAX_SECRET_BYTES`]. Blocks on the file system.
///
/// # Errors
/// If the file cannot be read or is not a regular file, or if `parse` rejects the line; the message then asks for
/// `expected`.
pub fn read_secret<T>(
    path: &Path,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, FileError> {
    let bytes = read_bytes(path)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).ok().filter(|line| line.len() <= MAX_SECRET_BYTES);
    let parsed = line.and_then(parse);
    parsed.ok_or_else(|| FileError::unusable(path, format_args!("the first line must have {expected}")))
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let fault = |error: std::io::Error| FileFault::Unreadable(error.to_string());
    read_file(path, MAX_FILE_BYTES).map_err(|error| FileError { path: path.to_owned(), fault: fault(error) })
}

/// Never shows the content: the parser's own message quotes lines as byte lists, and lines of a key file are secret.
fn malformed(error: &pem::Error) -> FileFault {
    let reason = match error {
        pem::Error::MissingSectionEnd { .. } => "a BEGIN line without its END line",
        pem::Error::IllegalSectionStart { .. } => "a malformed BEGIN line",
        pem::Error::Base64Decode(_) => "invalid base64",
        _ => "cannot parse it",
    };
    FileFault::Malformed(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

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
            (certificate, "1", "contains no private key"),
            (key, "contains no certificate", "a key"),
            ("", "contains no certificate", "contains no private key"),
            ("hello", "contains no certificate", "contains no private key"),
            (cut, "not valid PEM: a BEGIN line without", "not valid PEM: a BEGIN line without"),
            (
                "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
                "not valid PEM: invalid base64",
                "not",
            ),
            (encrypted, "contains no certificate", "the private key is encrypted"),
            (old, "not valid PEM: invalid base64", "the private key is encrypted"),
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
        assert_eq!(folder.to_string(), "/: not a regular file");
        let large = tempfile::NamedTempFile::new().expect("a temporary file");
        large.as_file().set_len(MAX_FILE_BYTES + 1).expect("a sparse file");
        let error = PemFile::open(large.path()).expect_err("too large").to_string();
        assert!(error.ends_with(": larger than 1048576 bytes"), "{error}");
    }

    #[test]
    fn a_secret_is_the_first_line_of_a_file() {
        let longest = "x".repeat(MAX_SECRET_BYTES);
        // The file; the secret.
        let table = [
            (b"s3cret".to_vec(), Some("s3cret")),
            (b"s3cret\n".to_vec(), Some("s3cret")),
            (b"two words \r\nsecond line\n".to_vec(), Some("two words ")),
            (format!("{longest}\r\nsecond line\n").into_bytes(), Some(longest.as_str())),
            (format!("{longest}x").into_bytes(), None),
            (b"".to_vec(), None),
            (b"\ns3cret".to_vec(), None),
            (b"\xff".to_vec(), None),
        ];
        let read =
            |path: &Path| read_secret(path, "a secret", |line| (!line.is_empty()).then(|| line.to_owned()));
        for (content, expected) in table {
            let file = tempfile::NamedTempFile::new().expect("a temporary file");
            fs::write(file.path(), &content).expect("room for a file");
            let secret = read(file.path()).map_err(|error| error.fault.to_string());
            let fault = "the first line must have a secret".to_owned();
            assert_eq!(secret, expected.map(str::to_owned).ok_or(fault));
        }
        let folder = read(Path::new("/")).expect_err("a folder").to_string();
        assert_eq!(folder, "/: not a regular file");
    }
}
