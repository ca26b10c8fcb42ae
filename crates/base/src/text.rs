//! Makes strings from outside safe to show: client values, reasons of exceptions, file names.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// `true` for characters that move the cursor of a terminal, break a line, or change the text direction.
pub fn is_hostile(letter: char) -> bool {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// Lower-case, two digits per byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA-256 over the parts. The length of each part (8 bytes, little-endian) precedes it.
pub fn sha256<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> [u8; 32] {
    let hash = parts.into_iter().fold(Sha256::new(), |hash, part| {
        // A 64-bit length holds every usize.
        hash.chain_update((part.len() as u64).to_le_bytes()).chain_update(part)
    });
    hash.finalize().into()
}

/// Returns the first 12 hex digits of [`sha256`].
pub fn digest<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> String {
    hex(&sha256(parts)[..6])
}

/// Returns the first 12 hex digits of the SHA-256 over what `Debug` prints, without holding all of it at once.
pub fn debug_digest(value: &impl fmt::Debug) -> String {
    struct Hashed(Sha256);
    impl fmt::Write for Hashed {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text);
            Ok(())
        }
    }
    let mut hashed = Hashed(Sha256::new());
    // Only a `Debug` that itself fails can fail here, and the digest is then of what it printed.
    let _ = write!(hashed, "{value:?}");
    hex(&hashed.0.finalize()[..6])
}

/// Groups digits by three: `12,345`.
pub fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Replaces hostile characters by escapes such as `\n` or `\u{202e}`; the result is one line.
pub fn escaped(text: String) -> String {
    if text.contains(is_hostile) {
        replaced(&text, is_hostile, |out, letter| match letter {
            '\n' | '\r' | '\t' => out.extend(letter.escape_default()),
            letter => out.extend(letter.escape_unicode()),
        })
    } else {
        text
    }
}

/// Like [`escaped`], but keeps line breaks and tabs.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    let is_hostile = |letter: char| is_hostile(letter) && !matches!(letter, '\n' | '\t');
    if text.contains(is_hostile) {
        replaced(text, is_hostile, |out, letter| out.extend(letter.escape_unicode())).into()
    } else {
        text.into()
    }
}

/// Replaces hostile characters in JSON by `\u` escapes, which keeps its meaning: outside strings, JSON only has line
/// breaks of them.
pub fn escaped_json(json: String) -> String {
    let is_hostile = |letter: char| is_hostile(letter) && letter != '\n';
    if json.contains(is_hostile) {
        replaced(&json, is_hostile, |out, letter| {
            // All of them fit four digits. Writing to a String cannot fail.
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        })
    } else {
        json
    }
}

fn replaced(text: &str, is_hostile: impl Fn(char) -> bool, replace: impl Fn(&mut String, char)) -> String {
    text.chars().fold(String::with_capacity(text.len() + 16), |mut out, letter| {
        if is_hostile(letter) {
            replace(&mut out, letter);
        } else {
            out.push(letter);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        let table = [(0, "0"), (999, "999"), (1_000, "1,000"), (60_000, "60,000"), (2_000_000, "2,000,000")];
        for (number, text) in table {
            assert_eq!(with_commas(number), text);
        }
    }

    #[test]
    fn a_digest_depends_on_where_a_part_ends() {
        let parts = |parts: &[&'static str]| digest(parts.iter().map(|part| part.as_bytes()));
        // printf '\x01\0\0\0\0\0\0\0a\x02\0\0\0\0\0\0\0bc' | sha256sum
        assert_eq!(parts(&["a", "bc"]), "9a8acca1b6c6");
        assert_ne!(parts(&["ab", "c"]), parts(&["a", "bc"]));
        // sha256sum < /dev/null
        assert_eq!(parts(&[]), "e3b0c44298fc");
    }

    #[test]
    fn hostile_characters_are_shown_and_have_no_effect() {
        let text = "a\u{1b}[31m\u{9b}b\u{202e}\u{2066}\u{2028}\u{7}é\n\tc";
        let shown = r"a\u{1b}[31m\u{9b}b\u{202e}\u{2066}\u{2028}\u{7}é";
        assert_eq!(escaped(text.to_owned()), format!("{shown}\\n\\tc"));
        assert_eq!(escaped_lines(text), format!("{shown}\n\tc"));
        let plain = "größer 1\n2";
        assert!(matches!(escaped_lines(plain), Cow::Borrowed(same) if same == plain));
    }

    #[test]
    fn json_means_the_same() {
        let json = "{\n  \"a\": \"\u{7f}\u{9b}x\u{202e}\u{2069}\u{2029}\"\n}\n";
        assert_eq!(
            escaped_json(json.to_owned()),
            "{\n  \"a\": \"\\u007f\\u009bx\\u202e\\u2069\\u2029\"\n}\n"
        );
    }
}
