//! Paths that clients can spell in many ways, in one spelling (RFC 3986, 6.2.2).

use std::borrow::Cow;

/// Characters that have a meaning where they are not written as `%XX`.
const DELIMITERS: &[u8] = b"/%?#\\";

/// The path of a path with query, or of a URL, in one spelling: without `%XX` for a character of ASCII that needs none,
/// and without empty segments, `.` and `..`. A `/` at the end stays. A value that is no path is returned as it is.
pub(super) fn normalized(value: &str) -> Cow<'_, str> {
    let path = value.split(['?', '#']).next().unwrap_or_default();
    let path = without_host(path);
    if !path.starts_with('/') {
        return Cow::Borrowed(value);
    }
    let found = one_spelling(&decoded(path));
    if found == value { Cow::Borrowed(value) } else { Cow::Owned(found) }
}

fn without_host(path: &str) -> &str {
    match path.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |start| &rest[start..]),
        _ => path,
    }
}

fn decoded(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut parts = path.split('%');
    decoded.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) if byte.is_ascii_graphic() && !DELIMITERS.contains(&byte) => {
                decoded.push(byte.into());
                decoded.push_str(&part[2..]);
            }
            Some(byte) => {
                decoded.push_str(&format!("%{byte:02X}"));
                decoded.push_str(&part[2..]);
            }
            // A `%` of its own, which must not begin a character with what follows.
            None => decoded.extend(["%25", part]),
        }
    }
    decoded
}

fn one_spelling(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let is_folder = path.rsplit('/').next().is_some_and(|last| matches!(last, "" | "." | ".."));
    let end = if is_folder && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
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
            ("/./users/./1", "/users/1"),
            ("/x/../users/1", "/users/1"),
            ("/../../users/1", "/users/1"),
            ("/users/1/.", "/users/1/"),
            ("/users/1/x/..", "/users/1/"),
            ("/users/%2e%2E/login", "/login"),
            ("/", "/"),
            ("//", "/"),
            ("/..", "/"),
            ("/?q", "/"),
            ("http://shop.example/users/1?a", "/users/1"),
            ("https://shop.example", "/"),
            ("http://shop.example?a", "/"),
            // What has another meaning without %XX, or is no character of ASCII, keeps it.
            ("/a%2fb%3f%25", "/a%2Fb%3F%25"),
            ("/caf%c3%a9%20x", "/caf%C3%A9%20x"),
            ("/%", "/%25"),
            ("/%4", "/%254"),
            ("/%%41", "/%25A"),
            ("/%zz%41", "/%25zzA"),
            ("/%+1", "/%25+1"),
            ("/é%é", "/é%25é"),
            ("*", "*"),
            ("", ""),
            ("users/1", "users/1"),
        ];
        for (path, expected) in table {
            assert_eq!(normalized(path), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn one_spelling_stays_as_it_is(path in "(http://h)?/?([a./%é]|%2e|%2f|%41|\\?){0,12}") {
            let once = normalized(&path).into_owned();
            prop_assert_eq!(normalized(&once), once.as_str());
        }
    }
}
