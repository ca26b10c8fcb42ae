//! Represents request bytes that are not UTF-8 as a string.

use crate::limit::key::{push_byte, write_hash};

/// At most this many bytes are spelled out.
const MAX_SPELLED_BYTES: usize = 64;

/// Converts request bytes, such as a Latin-1 header value, to a string: unchanged if they are UTF-8, else to a string
/// that no other invalid bytes produce.
///
/// Each byte that is not part of a UTF-8 character, and each `%` of such input, becomes `%x` and two hexadecimal
/// digits. Only the start of a long value is spelled out; a hash of all its bytes follows, so the result stays short.
///
/// UTF-8 input is unchanged, so a request that sends `caf%xE9` literally means the same as one that sends `caf` and the
/// byte E9. See docs/decisions/0035-bytes-that-are-no-text.md.
pub fn text_of_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => spelled(bytes),
    }
}

#[cold]
fn spelled(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(MAX_SPELLED_BYTES)];
    let mut text = String::with_capacity(4 * start.len());
    for chunk in start.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '%' => push_spelled(&mut text, b'%'),
                other => text.push(other),
            }
        }
        for &byte in chunk.invalid() {
            push_spelled(&mut text, byte);
        }
    }
    if start.len() < bytes.len() {
        // The hash begins with `%h`, and no byte is spelled `%h`.
        write_hash(&mut text, bytes);
    }
    text
}

fn push_spelled(text: &mut String, byte: u8) {
    text.push_str("%x");
    push_byte(text, byte);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_bytes_that_are_no_text_are_spelled() {
        // Bytes as sent, and the string.
        let table: [(&[u8], &str); 8] = [
            (b"", ""),
            ("caf\u{e9} 100%xE9".as_bytes(), "caf\u{e9} 100%xE9"),
            (b"caf\xe9", "caf%xE9"),
            (b"\xff", "%xFF"),
            (b"\xed\xa0\x80", "%xED%xA0%x80"),
            (b"100% caf\xe9", "100%x25 caf%xE9"),
            (b"caf%xE9 \xe9", "caf%x25xE9 %xE9"),
            (b"\xc3\xa9\xc3", "\u{e9}%xC3"),
        ];
        for (bytes, text) in table {
            assert_eq!(text_of_bytes(bytes), text, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_long_text_is_its_start_and_a_hash() {
        let long = |last: u8| [&b"a".repeat(MAX_SPELLED_BYTES)[..], &b"b".repeat(60_000), &[last]].concat();
        let (first, second) = (text_of_bytes(&long(0xff)), text_of_bytes(&long(0xfe)));
        assert_ne!(first, second);
        let (start, hash) = first.split_at(MAX_SPELLED_BYTES);
        assert_eq!(start, "a".repeat(MAX_SPELLED_BYTES));
        assert!(hash.starts_with("%h") && hash.len() == 34, "{hash}");
        let worst = text_of_bytes(&[0xff; 60_000]);
        assert_eq!(worst.len(), 4 * MAX_SPELLED_BYTES + 34);
        assert_eq!(text_of_bytes(&[0xff; MAX_SPELLED_BYTES]).len(), 4 * MAX_SPELLED_BYTES);
    }

    /// Bytes likely to collide: pieces of what is spelled out, and of characters.
    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(&b"%"[..]),
            Just(&b"%x"[..]),
            Just(&b"%x25"[..]),
            Just(&b"%xE9"[..]),
            Just(&b"\xe9"[..]),
            Just(&b"\xc3\xa9"[..]),
            Just(&b"\xc3"[..]),
            Just(&b"\xa9"[..]),
            Just(&b"x25"[..]),
            Just(&[b'a'; MAX_SPELLED_BYTES][..]),
        ];
        prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn different_bytes_never_become_the_same_text(one in any_bytes(), other in any_bytes()) {
            let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
            // UTF-8 maps to itself and may equal the string of other bytes, so compare only like with like.
            if is_text(&one) == is_text(&other) {
                prop_assert_eq!(one == other, text_of_bytes(&one) == text_of_bytes(&other));
            }
        }

        #[test]
        fn a_text_stays_as_it_is(text in ".{0,80}") {
            prop_assert_eq!(text_of_bytes(text.as_bytes()), text);
        }
    }
}
