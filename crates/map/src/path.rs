//! Normalizes paths, which clients can spell in many ways (RFC 3986, 6.2.2).
//!
//! Services read some paths differently, and a client chooses the spelling and thereby the limits. So normalization
//! only merges spellings if that can only add a limit; a path whose meaning depends on the service is rejected.

use std::borrow::Cow;

/// These stay `%XX`, because the plain character would end the path. `%2F` is decoded: many servers decode it, and then
/// route.
const DELIMITERS: &[u8] = b"?#";

/// The path in a path with query or a URL, as the client wrote it; `None` for a value that is not a path.
pub(crate) fn path_of(value: &str) -> Option<&str> {
    let path = value.split(['?', '#']).next().unwrap_or_default();
    let path = match path.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |start| &rest[start..]),
        _ => path,
    };
    path.starts_with('/').then_some(path)
}

/// Normalizes a path: decodes `%XX` (also written `%25XX`) for characters that need no escape, turns `\` into `/`,
/// drops empty segments and whatever follows `;` in a segment. Keeps a final `/`. `None` if a segment is `.` or `..`.
pub(crate) fn one_spelling(path: &str) -> Option<Cow<'_, str>> {
    let path = decoded(path);
    if path.split('/').any(|part| matches!(without_parameters(part), "." | "..")) {
        return None;
    }
    if !path.contains("//") && !path.contains(';') {
        return Some(path);
    }
    let segments: Vec<&str> = path.split('/').map(without_parameters).collect();
    let is_folder = segments.last().is_some_and(|last| last.is_empty());
    let segments: Vec<&str> = segments.into_iter().filter(|segment| !segment.is_empty()).collect();
    let end = if is_folder && !segments.is_empty() { "/" } else { "" };
    Some(Cow::Owned(format!("/{}{end}", segments.join("/"))))
}

fn without_parameters(segment: &str) -> &str {
    segment.split(';').next().unwrap_or_default()
}

fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains(['%', '\\']) {
        return Cow::Borrowed(path);
    }
    let slashed = |character| if character == '\\' { '/' } else { character };
    let mut decoded = String::with_capacity(path.len());
    for character in path.chars() {
        decoded.push(slashed(character));
        // A decoded character may complete another `%XX`: `%2541` is `%41`, which is `A`.
        while let Some(byte) = escaped_at_end(&decoded) {
            decoded.truncate(decoded.len() - 3);
            if !byte.is_ascii_graphic() || DELIMITERS.contains(&byte) {
                decoded.push_str(&format!("%{byte:02X}"));
                decode_character(&mut decoded);
                break;
            }
            decoded.push(slashed(byte.into()));
        }
    }
    Cow::Owned(decoded)
}

/// Decodes the trailing `%XX` of one non-ASCII character.
fn decode_character(text: &mut String) {
    let mut bytes = Vec::new();
    let mut start = text.len();
    while bytes.len() < 4
        && let Some(byte) = escaped_at_end(&text[..start]).filter(|byte| !byte.is_ascii())
    {
        bytes.insert(0, byte);
        start -= 3;
        if let Ok(character) = str::from_utf8(&bytes) {
            text.replace_range(start.., character);
            return;
        }
    }
}

/// The byte of a trailing `%XX`.
fn escaped_at_end(text: &str) -> Option<u8> {
    let [.., b'%', high, low] = text.as_bytes() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        let table = [
            ("/users/1", "/users/1"),
            ("/users/1/?a=%62//c", "/users/1/"),
            ("/%75sers/%31", "/users/1"),
            ("//users///1", "/users/1"),
            ("/users/1;v=2", "/users/1"),
            ("/users;a;b/1/;c", "/users/1/"),
            ("/users/1%3bv", "/users/1"),
            ("/..x/.y/z..", "/..x/.y/z.."),
            ("/", "/"),
            ("//", "/"),
            ("/;a", "/"),
            ("/?q=../x", "/"),
            ("http://shop.example/users/1?a", "/users/1"),
            ("https://shop.example", "/"),
            ("http://shop.example?a", "/"),
            // Many servers decode these before they route.
            ("/a%2fb", "/a/b"),
            ("/%2Fa%2f/b%2F", "/a/b/"),
            ("/a\\b%5c%5Cc", "/a/b/c"),
            // Characters with another meaning without %XX stay escaped.
            ("/a%3f%23b%20", "/a%3F%23b%20"),
            ("/caf%c3%a9/%E2%82%AC%F0%9F%98%80", "/café/€😀"),
            // Not UTF-8.
            ("/%a9%e9%C3/%E2%82%20%AC", "/%A9%E9%C3/%E2%82%20%AC"),
            // Services that decode twice.
            ("/%256Cogin", "/login"),
            ("/%25256cogin", "/login"),
            ("/a%252fb", "/a/b"),
            ("/l%25C3%25B6schen", "/löschen"),
            ("/%", "/%"),
            ("/%25", "/%"),
            ("/%4", "/%4"),
            ("/%%34%31", "/A"),
            ("/%zz%41", "/%zzA"),
            ("/%+1", "/%+1"),
            ("/é%é", "/é%é"),
        ];
        for (value, expected) in table {
            let path = path_of(value).expect("a path");
            assert_eq!(one_spelling(path).as_deref(), Some(expected), "{value}");
        }
        for no_path in ["*", "", "users/1"] {
            assert_eq!(path_of(no_path), None, "{no_path}");
        }
    }

    #[test]
    fn a_path_that_services_read_in_different_ways_has_no_spelling() {
        let table = [
            "/files/x/../../health",
            "/files/x/%2e%2E/%2e%2e/health",
            "/files/../health",
            "/files/x;/../../health",
            "/files/..;/health",
            "/files/..;a=b",
            "/files/.%2e/health",
            "/files/%252e%252e/health",
            "/files/..%2fhealth",
            "/files/x%2f..%5c..%2Fhealth",
            "/files/..\\health",
            "/files/.",
            "/./files",
            "/..",
        ];
        for path in table {
            assert_eq!(one_spelling(path), None, "{path}");
        }
    }

    proptest! {
        /// The bound on the bytes of a value then holds for what the client sent.
        #[test]
        fn one_spelling_stays_as_it_is_and_is_never_longer(
            path in r"/([a./%é;\\]|%2e|%2f|%5c|%41|%25|%c3|%a9|5|2){0,12}"
        ) {
            let Some(once) = one_spelling(&path) else { return Ok(()) };
            prop_assert!(once.len() <= path.len());
            let twice = one_spelling(&once);
            prop_assert_eq!(twice.as_deref(), Some(&*once));
        }
    }
}
