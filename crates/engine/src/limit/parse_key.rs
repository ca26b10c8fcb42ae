//! Parses counter keys, the inverse of `key.rs`. Hashes stay hashes.

use super::key::Entry;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedKey {
    pub domain: KeyText,
    /// Excludes entries that are hashed together, which are in `tail`.
    pub entries: Vec<(KeyText, KeyValue)>,
    /// `%h` and digits: the hash of all entries after the first, if they are too long for the key.
    pub tail: Option<String>,
    /// Kernel and parameters of the limit.
    pub fingerprint: String,
}

/// A domain or the key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyText {
    /// As in the request.
    Plain(String),
    /// `%h` and digits: too long for the key.
    Hashed(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyValue {
    /// As in the request.
    Plain(String),
    /// `%h` and digits: too long for the key.
    Hashed(String),
    /// `%k` and digits.
    Secret(String),
    /// A wildcard of a rule whose values share the counter.
    Shared(KeyText),
}

impl KeyText {
    /// The string, or its hash.
    pub fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Hashed(text) => text,
        }
    }
}

impl KeyValue {
    /// The value, its hash, or the pattern of values that share the counter.
    pub fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Hashed(text) | Self::Secret(text) => text,
            Self::Shared(pattern) => pattern.text(),
        }
    }
}

impl ParsedKey {
    /// Returns the entries of a request with this key. If the key lacks a value, its hash or pattern replaces it.
    pub fn to_entries(&self) -> Vec<Entry> {
        let entry = |(key, value): &(KeyText, KeyValue)| Entry {
            key: key.text().to_owned(),
            value: value.text().to_owned(),
        };
        self.entries.iter().map(entry).collect()
    }
}

/// Parses a counter key without the store's prefix; `None` for a string that [`crate::Plan::new`] does not write.
pub fn parse_key(key: &str) -> Option<ParsedKey> {
    // Neither the fingerprint nor the parts contain `#`.
    let (parts, fingerprint) = key.strip_prefix('{')?.split_once('#')?;
    let has_braces = parts.matches('}').count() == 1 && !parts.contains('{');
    if !has_braces {
        return None;
    }
    let (in_braces, after) = parts.split_once('}')?;
    // Hashed entries follow without a separator: after the brace, or after the first entry within the braces.
    let (in_braces, inner_tail) = split_tail(in_braces);
    let (after, outer_tail) = match after.strip_prefix("%h") {
        Some(_) => ("", Some(after)),
        None => split_tail(after),
    };
    let mut texts = in_braces.split('|');
    let domain = parse_text(texts.next()?)?;
    let entries = texts.chain(after.split('|').skip(1)).map(parse_entry).collect::<Option<Vec<_>>>()?;
    let tail = inner_tail.or(outer_tail).map(str::to_owned);
    Some(ParsedKey { domain, entries, tail, fingerprint: fingerprint.to_owned() })
}

/// Splits off a hash that follows an entry with a complete value.
fn split_tail(text: &str) -> (&str, Option<&str>) {
    let entry = text.rfind('|').map_or(0, |at| at + 1);
    let value = text[entry..].find('=').map(|at| entry + at + 1);
    let Some(value) = value else { return (text, None) };
    let at = text[value..].rfind("%h").map(|at| value + at);
    match at {
        // Here the value itself is a hash.
        Some(at) if at > value => (&text[..at], Some(&text[at..])),
        Some(_) | None => (text, None),
    }
}

fn parse_entry(text: &str) -> Option<(KeyText, KeyValue)> {
    let (key, value) = text.split_once('=')?;
    Some((parse_text(key)?, parse_value(value)?))
}

fn parse_value(text: &str) -> Option<KeyValue> {
    if let Some(pattern) = text.strip_suffix("%**").or_else(|| text.strip_suffix("%*")) {
        return parse_text(pattern).map(KeyValue::Shared);
    }
    if text.starts_with("%k") {
        return Some(KeyValue::Secret(text.to_owned()));
    }
    parse_text(text).map(|text| match text {
        KeyText::Plain(text) => KeyValue::Plain(text),
        KeyText::Hashed(hash) => KeyValue::Hashed(hash),
    })
}

fn parse_text(text: &str) -> Option<KeyText> {
    if text.starts_with("%h") {
        return Some(KeyText::Hashed(text.to_owned()));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high << 4 | low).ok()?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok().map(KeyText::Plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::key::{KeyContext, KeyPart, ShardBy, write_key};

    const HASH: &str = "%h00112233445566778899aabbccddeeff";
    const SECRET: &str = "%k00112233445566778899aabbccddeeff";

    fn plain(text: &str) -> KeyText {
        KeyText::Plain(text.to_owned())
    }

    fn entry(key: &str, value: &str) -> (KeyText, KeyValue) {
        (plain(key), KeyValue::Plain(value.to_owned()))
    }

    fn written(shard_by: ShardBy, domain: &str, parts: &[KeyPart<'_>]) -> String {
        let mut key = String::new();
        let context = KeyContext { domain, shard_by, fingerprint: "o:gc:60/60000000/10" };
        write_key(&mut key, &context, parts.iter().copied());
        key
    }

    #[test]
    fn each_kind_of_value_is_told_apart() {
        let parts = [
            KeyPart::Request("a", "x y%"),
            KeyPart::Hidden("b", SECRET),
            KeyPart::Rule("c", "v*"),
            KeyPart::Pattern("d", "d_*"),
            KeyPart::Request("e", ""),
        ];
        for shard_by in [ShardBy::Domain, ShardBy::FirstEntry, ShardBy::Descriptor] {
            let parsed = parse_key(&written(shard_by, "edge", &parts)).expect("a key");
            let expected = [
                entry("a", "x y%"),
                (plain("b"), KeyValue::Secret(SECRET.to_owned())),
                (plain("c"), KeyValue::Shared(plain("v*"))),
                (plain("d"), KeyValue::Shared(plain("d_*"))),
                entry("e", ""),
            ];
            assert_eq!((parsed.domain, parsed.entries.as_slice()), (plain("edge"), expected.as_slice()));
            assert_eq!((parsed.tail, parsed.fingerprint.as_str()), (None, "o:gc:60/60000000/10"));
        }
    }

    #[test]
    fn long_texts_are_hashes() {
        let long = "x".repeat(65);
        for shard_by in [ShardBy::Domain, ShardBy::FirstEntry, ShardBy::Descriptor] {
            let one = parse_key(&written(shard_by, &long, &[KeyPart::Request("k", &long)])).expect("a key");
            assert!(matches!(one.domain, KeyText::Hashed(_)), "{one:?}");
            assert!(matches!(&one.entries[..], [(_, KeyValue::Hashed(hash))] if hash.len() == HASH.len()));
            assert_eq!(one.tail, None, "{shard_by:?}");
            let value = "y".repeat(60);
            let entries = [KeyPart::Request("k", &value); 6];
            let many = parse_key(&written(shard_by, "d", &entries)).expect("a key");
            assert_eq!(many.entries, [entry("k", &value)], "{shard_by:?}");
            assert_eq!(many.tail.as_ref().map(String::len), Some(HASH.len()), "{shard_by:?}");
            let short = [&[KeyPart::Hidden("s", SECRET)][..], &entries].concat();
            let many = parse_key(&written(shard_by, "d", &short)).expect("a key");
            assert_eq!(many.entries, [(plain("s"), KeyValue::Secret(SECRET.to_owned()))], "{shard_by:?}");
        }
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in
            ["", "{", "{}", "a#b", "{a", "{a#b", "{a}|b#c", "{a%}#b", "{a%zz}#b", "{a}{}#b", "{a%ff}#b"]
        {
            assert_eq!(parse_key(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_key_that_is_written_reads_as_its_parts(
            domain in "[a_|={}%#h* é]{0,4}",
            entries in proptest::collection::vec(("[a_|={}%#h* é]{0,4}", "[b_|={}%#hk* é]{0,6}"), 0..5),
        ) {
            let parts: Vec<_> = entries.iter().map(|(key, value)| KeyPart::Request(key, value)).collect();
            for &shard_by in <ShardBy as strum::VariantArray>::VARIANTS {
                let parsed = parse_key(&written(shard_by, &domain, &parts)).expect("a key");
                let expected: Vec<_> = entries.iter().map(|(key, value)| entry(key, value)).collect();
                prop_assert_eq!(parsed.domain.text(), domain.as_str());
                prop_assert_eq!(parsed.entries, expected);
                prop_assert_eq!(parsed.tail, None);
            }
        }
    }
}
