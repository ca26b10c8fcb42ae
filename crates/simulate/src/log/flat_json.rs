//! Reads the usual line of JSON without a parser: one object whose texts have no escapes. Everything else is left to
//! [`json`](super::json), which gives the same values for the lines that are read here.

use std::borrow::Cow;

use map::Selected;

/// Maximum nesting of skipped values.
const MAX_DEPTH: usize = 32;

/// Which names of fields can be read here: those that no line has within another object.
pub(super) fn are_flat(names: &[String]) -> bool {
    names.iter().all(|name| !name.contains('.'))
}

/// Fills `values` with the fields of `names`, which [are flat](are_flat). Returns false if the line is no usual one;
/// then `values` have no meaning.
pub(super) fn read_flat_object<'l>(line: &'l str, names: &[String], values: &mut Selected<'l>) -> bool {
    let mut rest = Rest { line, at: 0 };
    rest.read_object(names, values).is_some()
}

/// What is left of a line. `None` of its functions: the line is no usual one.
struct Rest<'l> {
    line: &'l str,
    at: usize,
}

impl<'l> Rest<'l> {
    fn read_object(&mut self, names: &[String], values: &mut Selected<'l>) -> Option<()> {
        self.skip_spaces();
        self.take(b'{')?;
        self.skip_spaces();
        if self.peek()? == b'}' {
            self.at += 1;
            return self.is_at_end();
        }
        loop {
            self.skip_spaces();
            let key = self.text()?;
            self.skip_spaces();
            self.take(b':')?;
            self.skip_spaces();
            match names.iter().position(|name| name == key) {
                Some(index) => {
                    let value = self.value()?;
                    // Several names may be the same field under two names.
                    for at in index + 1..names.len() {
                        if names[at] == names[index] {
                            values[at].clone_from(&value);
                        }
                    }
                    values[index] = value;
                }
                None => self.skip_value()?,
            }
            self.skip_spaces();
            match self.next()? {
                b',' => {}
                b'}' => return self.is_at_end(),
                _ => return None,
            }
        }
    }

    /// The value of a wanted field: a text, an integer, a boolean or null.
    fn value(&mut self) -> Option<Option<Cow<'l, str>>> {
        match self.peek()? {
            b'"' => self.text().map(|text| (text != "-").then_some(Cow::Borrowed(text))),
            b'0'..=b'9' => self.integer().map(|digits| Some(Cow::Borrowed(digits))),
            b't' => self.word("true").map(|word| Some(Cow::Borrowed(word))),
            b'f' => self.word("false").map(|word| Some(Cow::Borrowed(word))),
            b'n' => self.word("null").map(|_| None),
            _ => None,
        }
    }

    /// Skips a value, which may be nested.
    fn skip_value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.text().map(drop),
            b'{' | b'[' => self.skip_nested(),
            b't' => self.word("true").map(drop),
            b'f' => self.word("false").map(drop),
            b'n' => self.word("null").map(drop),
            _ => self.skip_number(),
        }
    }

    /// Skips an object or a list.
    fn skip_nested(&mut self) -> Option<()> {
        // The closing bracket of each open object or list.
        let mut open: [u8; MAX_DEPTH] = [0; MAX_DEPTH];
        let mut depth = 0;
        loop {
            // A value begins here.
            self.skip_spaces();
            match self.peek()? {
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    let closing = if bracket == b'{' { b'}' } else { b']' };
                    self.skip_spaces();
                    if self.peek()? == closing {
                        self.at += 1;
                    } else {
                        *open.get_mut(depth)? = closing;
                        depth += 1;
                        if closing == b'}' {
                            self.skip_key()?;
                        }
                        continue;
                    }
                }
                _ => self.skip_value()?,
            }
            // A value has ended.
            loop {
                let Some(closing) = depth.checked_sub(1).map(|last| open[last]) else { return Some(()) };
                self.skip_spaces();
                match self.next()? {
                    b',' if closing == b'}' => {
                        self.skip_key()?;
                        break;
                    }
                    b',' => break,
                    byte if byte == closing => depth -= 1,
                    _ => return None,
                }
            }
        }
    }

    fn skip_key(&mut self) -> Option<()> {
        self.skip_spaces();
        self.text()?;
        self.skip_spaces();
        self.take(b':')
    }

    /// A text without escapes and control characters.
    fn text(&mut self) -> Option<&'l str> {
        self.take(b'"')?;
        let inside = &self.line[self.at..];
        let end = end_of_text(inside.as_bytes())?;
        if inside.as_bytes()[end] != b'"' {
            return None;
        }
        self.at += end + 1;
        Some(&inside[..end])
    }

    /// Digits of a number below 10^19, which is shown as it is written.
    fn integer(&mut self) -> Option<&'l str> {
        let start = self.at;
        self.skip_digits();
        let digits = &self.line[start..self.at];
        let is_more = matches!(self.bytes().get(self.at), Some(b'.' | b'e' | b'E'));
        let is_usual = digits.len() < 20 && (digits == "0" || !digits.starts_with('0'));
        (is_usual && !is_more).then_some(digits)
    }

    /// Skips a number without an exponent, which could be out of range.
    fn skip_number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let start = self.at;
        self.skip_digits();
        let digits = &self.bytes()[start..self.at];
        if digits.is_empty() || digits.len() > 1 && digits[0] == b'0' {
            return None;
        }
        if self.bytes().get(self.at) == Some(&b'.') {
            self.at += 1;
            let start = self.at;
            self.skip_digits();
            if self.at == start {
                return None;
            }
        }
        // More digits could be out of range, too.
        let is_short = digits.len() < 300;
        let has_exponent = matches!(self.bytes().get(self.at), Some(b'e' | b'E'));
        (is_short && !has_exponent).then_some(())
    }

    fn skip_digits(&mut self) {
        while self.bytes().get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &'static str) -> Option<&'static str> {
        self.line[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            word
        })
    }

    fn skip_spaces(&mut self) {
        while matches!(self.bytes().get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn is_at_end(&mut self) -> Option<()> {
        self.skip_spaces();
        (self.at == self.line.len()).then_some(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, expected: u8) -> Option<()> {
        (self.next()? == expected).then_some(())
    }

    fn bytes(&self) -> &'l [u8] {
        self.line.as_bytes()
    }
}

/// The place of the first quote, backslash or control character. Looks at eight bytes at a time.
fn end_of_text(bytes: &[u8]) -> Option<usize> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The lowest high bit that is set belongs to the first byte below `bound`; those above it have no meaning.
    let below = |word: u64, bound: u64| word.wrapping_sub(EACH * bound) & !word & (EACH << 7);
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk() {
        let word = u64::from_le_bytes(*chunk);
        let is_quote = below(word ^ (EACH * u64::from(b'"')), 1);
        let is_backslash = below(word ^ (EACH * u64::from(b'\\')), 1);
        let found = is_quote | is_backslash | below(word, 0x20);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
    Some(at + rest)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use smallvec::smallvec;

    use super::super::json::read_object;
    use super::*;

    const NAMES: [&str; 5] = ["a", "code", ":authority", "a", "x-y"];

    fn names() -> Vec<String> {
        NAMES.map(str::to_owned).to_vec()
    }

    /// The values as both readers find them; `None` of the first one for a line that is no usual one, and of the second
    /// one for a line that is no object.
    fn both(line: &str) -> (Option<Selected<'_>>, Option<Selected<'_>>) {
        let (mut flat, mut whole): (Selected<'_>, Selected<'_>) =
            (smallvec![None; NAMES.len()], smallvec![None; NAMES.len()]);
        let is_flat = read_flat_object(line, &names(), &mut flat);
        let is_object = read_object(line, &names(), &mut whole).is_ok();
        (is_flat.then_some(flat), is_object.then_some(whole))
    }

    fn value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            r#""[ -!#-\[\]-~äß€]{0,12}""#,
            r#""[a-z\\"nu0-9]{0,6}""#,
            Just("\"-\"".to_owned()),
            any::<u64>().prop_map(|number| number.to_string()),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| number.to_string()),
            "-?[0-9]{1,22}(\\.[0-9]{0,3})?([eE][-+]?[0-9]{1,3})?",
            prop_oneof![Just("true"), Just("false"), Just("null"), Just("nul"), Just("01")]
                .prop_map(str::to_owned),
        ];
        leaf.prop_recursive(4, 12, 3, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..3).prop_map(|values| format!("[{}]", values.join(", "))),
                vec(inner, 0..3).prop_map(|values| {
                    let pairs = values.iter().map(|value| format!("\"a\" :{value}"));
                    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    fn line() -> impl Strategy<Value = String> {
        let key = prop_oneof![(0..NAMES.len()).prop_map(|name| NAMES[name].to_owned()), "[a-z:.-]{0,4}"];
        vec((key, value()), 0..6).prop_map(|pairs| {
            let pairs = pairs.iter().map(|(key, value)| format!("\"{key}\":{value}"));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn what_is_read_here_is_what_a_parser_reads(
            line in line(),
            changes in vec((any::<Index>(), prop_oneof![Just(None), "[\"\\\\{}\\[\\],: 0-9a-]".prop_map(Some)]), 0..3),
        ) {
            let mut line: Vec<char> = line.chars().collect();
            for (at, change) in &changes {
                let at = at.index(line.len());
                match change.as_ref().and_then(|change| change.chars().next()) {
                    Some(other) => line[at] = other,
                    None => line.truncate(at + 1),
                }
            }
            let line: String = line.into_iter().collect();
            let (flat, whole) = both(&line);
            if flat.is_some() {
                prop_assert_eq!(flat, whole, "{}", line);
            }
        }
    }

    #[test]
    fn a_text_ends_at_the_first_special_byte() {
        for length in 0..40 {
            for other in 0..=u8::MAX {
                let mut bytes = vec![b'x'; 40];
                bytes[length] = other;
                bytes[length + 1..].fill(other.wrapping_add(1));
                let expected = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
                assert_eq!(end_of_text(&bytes), expected, "{other} at {length}");
                assert_eq!(end_of_text(&bytes[..length]), None);
            }
        }
    }

    #[test]
    fn usual_lines_are_read_here() {
        let lines = [
            r#"{"a":"x","code":200,":authority":"h","x-y":"-","other":-1.5}"#,
            r#" { "a" : null , "code" : true , "list" : [ 1 , [ ] , { } , { "a" : { "b" : [ "c" ] } } ] } "#,
            "{}",
        ];
        for line in lines {
            let (flat, whole) = both(line);
            assert!(flat.is_some(), "{line}");
            assert_eq!(flat, whole, "{line}");
        }
    }

    #[test]
    fn unusual_lines_are_left_to_the_parser() {
        let deep = format!("{{\"b\":{}{}}}", "[".repeat(100), "]".repeat(100));
        let lines = [
            r#"{"a":"x\ny"}"#,
            r#"{"a":1.5}"#,
            r#"{"a":[1]}"#,
            r#"{"b":1e3}"#,
            r#"{"a":"x"} y"#,
            "{\"a\":\"\u{1}\"}",
            r#"{"a":1"#,
            "[]",
            "",
            &deep,
        ];
        for line in lines {
            assert_eq!(both(line).0, None, "{line}");
        }
    }
}
