//! `secrets.*`: which values are hashed in addition to those marked in rules, and the hash key.

use std::path::{Path, PathBuf};

use engine::{HashKey, ValueHashing};
use tls::{FileError, MAX_SECRET_BYTES, read_secret};

use super::error::Fault;
use super::parsers::{Parser, flag, optional_path};
use super::reader::Reader;

const ALL_VALUES: &str = "secrets.hash_all_values";
const KEY_FILE: &str = "secrets.key_file";

/// As hexadecimal digits this is a key of 128 bits: too many to try on a known value and its hash.
const MIN_KEY_BYTES: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secrets {
    /// `secrets.hash_all_values`: `true` if every value of every request is hashed.
    pub hash_all_values: bool,
    /// `secrets.key` or `secrets.key_file`
    pub key: HashKeySource,
}

/// Source of the hash key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKeySource {
    /// No key, so no value can be secret.
    None,
    Given(HashKey),
    /// The first line of this file.
    File(PathBuf),
}

/// Why `secrets.key_file` lacks a key.
#[derive(Debug, thiserror::Error)]
#[error("{KEY_FILE}: {0}")]
pub struct KeyFileError(#[from] FileError);

impl Secrets {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let hash_all_values = reader.take(ALL_VALUES, "false", flag());
        let key = Parser::new(expected_key(), |text| key_of(text.as_bytes()));
        let given = reader.take("secrets.key", "", key.or_nothing().secret());
        let file = reader.take(KEY_FILE, "", optional_path());
        if given.is_some() && file.is_some() {
            reader.refuse(KEY_FILE, Fault::Unsupported("the key is set already; set only one of the two"));
        }
        if hash_all_values && given.is_none() && file.is_none() {
            let reason = "the hashes need a key: set secrets.key_file or secrets.key";
            reader.refuse(ALL_VALUES, Fault::Unsupported(reason));
        }
        let key = match (given, file) {
            (Some(key), _) => HashKeySource::Given(key),
            (None, Some(path)) => HashKeySource::File(path),
            (None, None) => HashKeySource::None,
        };
        Self { hash_all_values, key }
    }

    /// Returns what the rules need to hash values. Reads the key file, if one is set.
    ///
    /// # Errors
    /// [`KeyFileError`]: the file lacks a key.
    pub fn value_hashing(&self) -> Result<ValueHashing, KeyFileError> {
        let key = match &self.key {
            HashKeySource::None => None,
            HashKeySource::Given(key) => Some(*key),
            HashKeySource::File(path) => Some(read_key_file(path)?),
        };
        Ok(ValueHashing { key, all_values: self.hash_all_values })
    }
}

fn expected_key() -> String {
    format!("{MIN_KEY_BYTES} to {MAX_SECRET_BYTES} visible ASCII characters")
}

fn key_of(text: &[u8]) -> Option<HashKey> {
    let is_key =
        (MIN_KEY_BYTES..=MAX_SECRET_BYTES).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
    is_key.then(|| HashKey::new(text))
}

fn read_key_file(path: &Path) -> Result<HashKey, KeyFileError> {
    Ok(read_secret(path, &expected_key(), |line| key_of(line.as_bytes()))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn from_text(text: &str) -> Result<HashKey, KeyFileError> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("room for a few bytes");
        read_key_file(file.path())
    }

    #[test]
    fn the_first_line_of_the_file_is_the_key() {
        let (shortest, longest) = ("k".repeat(MIN_KEY_BYTES), "k".repeat(MAX_SECRET_BYTES));
        let table = [
            // (content of the file, key)
            (shortest.clone(), Some(&shortest)),
            (format!("{shortest}\n"), Some(&shortest)),
            (format!("{shortest}\r\nsecond line\n"), Some(&shortest)),
            (format!("{longest}\r\n"), Some(&longest)),
            (format!("{longest}k"), None),
            (String::new(), None),
            (shortest[1..].to_owned(), None),
            (format!("\n{shortest}"), None),
            (format!("{shortest} {shortest}"), None),
            (format!("{shortest}\u{e9}"), None),
        ];
        for (text, key) in table {
            let read = from_text(&text);
            let expected = key.map(|key| HashKey::new(key.as_bytes()));
            assert_eq!(read.as_ref().ok(), expected.as_ref(), "{text:?}: {read:?}");
        }
    }

    #[test]
    fn an_unusable_file_is_named_with_its_setting() {
        let short = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(short.path(), "hunter2").expect("room for a few bytes");
        let table = [
            // (path, message)
            ("/nowhere/key".to_owned(), "/nowhere/key: No such file or directory (os error 2)".to_owned()),
            ("/".to_owned(), "/: not a regular file".to_owned()),
            (
                short.path().display().to_string(),
                format!(
                    "{}: the first line must have 32 to 4096 visible ASCII characters",
                    short.path().display()
                ),
            ),
        ];
        for (path, message) in table {
            let error = read_key_file(Path::new(&path)).expect_err(&path).to_string();
            assert_eq!(error, format!("secrets.key_file: {message}"));
        }
    }
}
