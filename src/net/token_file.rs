//! A caller's token, in a file that can change while the process runs.

use std::fmt;
use std::path::PathBuf;

use engine::HashKey;
use http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq as _;
use tls::{FileError, MAX_SECRET_BYTES, read_secret};

/// The scheme of RFC 6750, including the space.
const SCHEME: &str = "Bearer ";

/// Path of a file whose first line is a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(pub PathBuf);

/// A token. Never displayed.
#[derive(Clone)]
pub struct Token(String);

impl TokenFile {
    /// Reads the file on every call: a new token takes effect immediately. Blocks as long as the file system does.
    ///
    /// # Errors
    /// If the file is unreadable, or its first line is not a token.
    pub fn token(&self) -> Result<Token, FileError> {
        let expected = format!("1 to {MAX_SECRET_BYTES} visible ASCII characters");
        let is_token = |line: &str| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic());
        read_secret(&self.0, &expected, |line| is_token(line).then(|| Token(line.to_owned())))
    }
}

impl Token {
    /// `text` must be visible ASCII characters.
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns a key that only this token yields.
    pub fn key(&self) -> HashKey {
        HashKey::new(self.0.as_bytes())
    }

    /// `true` if the request has this token, exactly once. The time depends only on the tokens' lengths, not on how
    /// many bytes are equal.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => self.is_presented(value.as_bytes()),
            _ => false,
        }
    }

    fn is_presented(&self, authorization: &[u8]) -> bool {
        let presented = authorization.split_at_checked(SCHEME.len());
        presented.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && token.ct_eq(self.0.as_bytes()).into()
        })
    }

    /// Returns a value for the header `Authorization` with this token.
    pub fn authorization(&self) -> HeaderValue {
        let mut value =
            HeaderValue::try_from(format!("{SCHEME}{}", self.0)).expect("a token is visible ASCII");
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &[u8]) -> Result<Token, FileError> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("room for a few bytes");
        TokenFile(file.path().to_owned()).token()
    }

    #[test]
    fn the_first_line_is_the_token() {
        let longest = "x".repeat(MAX_SECRET_BYTES);
        let table = [
            ("s3cret", Some("s3cret")),
            ("s3cret\n", Some("s3cret")),
            ("s3cret\r\nsecond line\n", Some("s3cret")),
            (&format!("{longest}\r\nsecond line\n"), Some(longest.as_str())),
            (&format!("{longest}x"), None),
            ("", None),
            ("\ns3cret", None),
            ("two words", None),
            ("s3cret ", None),
            ("sécret", None),
        ];
        for (text, token) in table {
            let read = from_text(text.as_bytes());
            assert_eq!(read.as_ref().ok().map(|token| token.0.as_str()), token, "{text:?}: {read:?}");
        }
        let missing = TokenFile(PathBuf::from("/nowhere/token"));
        let message = missing.token().expect_err("there is no such file").to_string();
        assert!(message.starts_with("/nowhere/token: No such file"), "{message}");
    }

    #[test]
    fn a_request_presents_the_token_once_and_whole() {
        let token = from_text(b"s3cret").expect("a token");
        let table: [(&[&str], bool); 11] = [
            (&["Bearer s3cret"], true),
            (&["bearer s3cret"], true), // schemes have no case
            (&[], false),
            (&["s3cret"], false),
            (&["Bearer"], false),
            (&["Bearer "], false),
            (&["Bearer s3cre"], false),
            (&["Bearer s3crets"], false),
            (&["Bearer S3CRET"], false),
            (&["Basic s3cret"], false),
            (&["Bearer s3cret", "Bearer s3cret"], false),
        ];
        for (values, accepted) in table {
            let pair = |value: &&'static str| (header::AUTHORIZATION, HeaderValue::from_static(value));
            let headers: HeaderMap = values.iter().map(pair).collect();
            assert_eq!(token.is_in(&headers), accepted, "{values:?}");
        }
        let own = HeaderMap::from_iter([(header::AUTHORIZATION, token.authorization())]);
        assert!(token.is_in(&own));
        assert!(!format!("{own:?} {token:?}").contains("s3cret"));
    }
}
