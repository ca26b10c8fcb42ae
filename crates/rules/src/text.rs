//! Decodes rule files as envoyproxy/ratelimit's parser does, from UTF-8 or from UTF-16 with a byte order mark, and
//! guesses whether a file contains rules.

use std::borrow::Cow;

use crate::yaml::YamlError;

/// # Errors
/// On the line with the first invalid bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, YamlError> {
    match bytes {
        [0xFF, 0xFE, units @ ..] => decode_utf16(units, u16::from_le_bytes).map(Cow::Owned),
        [0xFE, 0xFF, units @ ..] => decode_utf16(units, u16::from_be_bytes).map(Cow::Owned),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(error) => {
                let newlines = bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
                Err(YamlError::new(line_after(newlines), "the file is not UTF-8"))
            }
        },
    }
}

fn decode_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, YamlError> {
    const REASON: &str = "the file begins as UTF-16 and is not UTF-16";
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    for decoded in char::decode_utf16(pairs.iter().map(|&pair| unit(pair))) {
        let Ok(letter) = decoded else {
            return Err(YamlError::new(line_after(newlines(&text)), REASON));
        };
        text.push(letter);
    }
    if !rest.is_empty() {
        return Err(YamlError::new(line_after(newlines(&text)), REASON));
    }
    Ok(text)
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

fn line_after(newlines: usize) -> u32 {
    u32::try_from(newlines + 1).unwrap_or(u32::MAX)
}

/// `true` if a file without a rule file's name looks like rules, so that its mistakes are errors instead of its limits
/// being ignored.
///
/// A line must have a key of rule files before a colon, at its start or after an opening brace, quoted or not. Prose
/// never does, and other YAML rarely.
pub(super) fn looks_like_rules(bytes: &[u8]) -> bool {
    let text = decode(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes));
    text.trim_start_matches('\u{feff}').lines().any(|line| {
        let Some((key, _)) = line.split_once(':') else { return false };
        let is_top = !line.starts_with([' ', '\t']) || line.contains('{');
        let key = key.trim_start_matches(['{', ' ', '\t']).trim_end();
        let unquoted = |quote| key.strip_prefix(quote)?.strip_suffix(quote);
        let key = unquoted('"').or_else(|| unquoted('\'')).unwrap_or(key);
        is_top && matches!(key, "domain" | "descriptors")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(bytes).collect()
    }

    #[test]
    fn utf_8_and_utf_16_with_a_byte_order_mark_are_text() {
        let text = "domain: é\n# 😀\n";
        for bytes in [text.into(), utf16(text, u16::to_le_bytes), utf16(text, u16::to_be_bytes)] {
            assert_eq!(decode(&bytes).as_deref(), Ok(text), "{bytes:?}");
        }
        assert_eq!(decode(b"").as_deref(), Ok(""));
    }

    #[test]
    fn other_bytes_are_refused_at_their_line() {
        let mut half = utf16("a: b\n", u16::to_le_bytes);
        half.push(b'c');
        let mut lone = utf16("a\nb\n", u16::to_be_bytes);
        lone.extend([0xD8, 0x00]);
        let unmarked: Vec<u8> = "a: b\n".encode_utf16().flat_map(u16::to_be_bytes).chain([0xFF]).collect();
        for (bytes, line, reason) in [
            (b"a: b\nc: \xFF\n".to_vec(), 2, "not UTF-8"),
            (half, 2, "not UTF-16"),
            (lone, 3, "not UTF-16"),
            (unmarked, 2, "not UTF-8"),
        ] {
            let error = decode(&bytes).expect_err("no text");
            assert!(error.line == line && error.reason.ends_with(reason), "{error:?}");
        }
    }

    #[test]
    fn rules_are_known_by_a_key_at_the_top() {
        let rules = [
            "domain: a\n",
            "# a comment\ndescriptors:\n- key: k\ndomain: a\n",
            "domain : a",
            "\"domain\": a",
            "{\"domain\": \"a\"}",
            "{ domain: a, descriptors: [] }",
            "  { 'descriptors': [] }",
            "domain: a\ndescriptors: [",
            "\u{feff}domain: a",
            "domain:",
        ];
        for text in rules {
            assert!(looks_like_rules(text.as_bytes()), "{text:?}");
        }
        let others = [
            "",
            "hello",
            "# domain: a",
            "These are the rules of the domain: edge",
            "a: {b: c}",
            "  domain: nested",
            "domains: [a]",
            "domain",
            "\"domain: a",
        ];
        for text in others {
            assert!(!looks_like_rules(text.as_bytes()), "{text:?}");
        }
        assert!(!looks_like_rules(b"\xff\xfe\x00"));
        let utf16: Vec<u8> = "\u{feff}domain: a".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(looks_like_rules(&utf16));
    }
}
