//! Writes counter keys, injective and bounded: `{domain|key=value}|key=value#fingerprint`.
//!
//! The part in braces selects the Redis Cluster slot ([`ShardBy`]). Reserved characters are escaped as `%XX`, so
//! different descriptors never share a key. A long part becomes `%h` and a hash of its unescaped form; a secret value
//! becomes `%k` and a keyed hash.

use serde::Serialize;
use sha2::{Digest, Sha256};
use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// May be empty: only a wildcard without a key matches an empty key.
    pub key: String,
    /// May be empty.
    pub value: String,
}

/// The part of a descriptor that selects the slot of its counters. One script call decides all counters in a slot.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ShardBy {
    /// Domain and first entry: all counters of one tenant, user or address share a slot.
    #[default]
    FirstEntry,
    /// The domain: all its counters share a slot, and so a node.
    Domain,
    /// The whole descriptor: its slot is independent of other descriptors.
    Descriptor,
}

/// Bytes of an escaped domain, key or value above which its hash is written instead.
const MAX_PART_LEN: usize = 64;
/// Bytes of all entries after the first above which their common hash is written instead.
const MAX_TAIL_LEN: usize = 192;

/// One entry of a counter key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyPart<'a> {
    /// Key and value of the request.
    Request(&'a str, &'a str),
    /// Key and value of the rule file: a wildcard whose values share the counter.
    Rule(&'a str, &'a str),
    /// Key of the request, and the wildcard pattern that matches it but has another key. The values of the request's
    /// key share the counter.
    Pattern(&'a str, &'a str),
    /// Key of the request, and the hash of a secret value.
    Hidden(&'a str, &'a str),
}

/// The rest of a counter key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyContext<'a> {
    pub(crate) domain: &'a str,
    pub(crate) shard_by: ShardBy,
    pub(crate) fingerprint: &'a str,
}

/// Appends a counter key to `out`: at most about 500 bytes, whatever the length of the entries.
pub(crate) fn write_key<'a>(
    out: &mut String,
    context: &KeyContext<'_>,
    mut parts: impl Iterator<Item = KeyPart<'a>>,
) {
    let close_brace = |out: &mut String, after: ShardBy| {
        if context.shard_by == after {
            out.push('}');
        }
    };
    out.push('{');
    write_text(out, context.domain);
    close_brace(out, ShardBy::Domain);
    if let Some(first) = parts.next() {
        write_part(out, first);
    }
    close_brace(out, ShardBy::FirstEntry);
    let tail = out.len();
    for part in parts {
        write_part(out, part);
    }
    if out.len() - tail > MAX_TAIL_LEN {
        let entries = out.split_off(tail);
        write_hash(out, entries.as_bytes());
    }
    close_brace(out, ShardBy::Descriptor);
    out.push('#');
    out.push_str(context.fingerprint);
}

/// Returns how every counter key of a domain begins; `|` or `}` follows.
pub fn key_start(domain: &str) -> String {
    let mut start = "{".to_owned();
    write_text(&mut start, domain);
    start
}

/// Begins fingerprints of limits that all regions share. No kernel's fingerprint begins like this.
pub(crate) const GLOBAL: &str = "g:";

/// `true` if a counter key, with or without a prefix of the store, is of a limit that all regions share.
pub fn is_global_key(key: &str) -> bool {
    key.rsplit_once('#').is_some_and(|(_, fingerprint)| fingerprint.starts_with(GLOBAL))
}

/// Returns the parts of a counter key that request values do not change: domain, entry keys and fingerprint. They are
/// equal for all counters of a limit. Entries hashed together are left out.
pub fn without_values(key: &str) -> impl Iterator<Item = &[u8]> {
    let parts = key.as_bytes().split(|byte| matches!(byte, b'|' | b'#'));
    // A value follows `=`. Nothing follows `}`, or the hash of the further entries.
    parts.filter_map(|part| part.split(|byte| matches!(byte, b'=' | b'}')).next())
}

fn write_part(out: &mut String, part: KeyPart<'_>) {
    let (KeyPart::Request(key, _)
    | KeyPart::Rule(key, _)
    | KeyPart::Pattern(key, _)
    | KeyPart::Hidden(key, _)) = part;
    out.push('|');
    write_text(out, key);
    out.push('=');
    // `%*` is not an escape, so no request entry produces it.
    match part {
        KeyPart::Request(_, value) => write_text(out, value),
        KeyPart::Rule(_, value) => {
            write_text(out, value);
            out.push_str("%*");
        }
        KeyPart::Pattern(_, pattern) => {
            write_text(out, pattern);
            out.push_str("%**");
        }
        KeyPart::Hidden(_, hash) => out.push_str(hash),
    }
}

fn write_text(out: &mut String, text: &str) {
    let start = out.len();
    // Escaping never shortens a string, so a long one is hashed unescaped: a crafted value of 16 KiB costs one pass.
    if text.len() <= MAX_PART_LEN {
        write_escaped(out, text);
        if out.len() - start <= MAX_PART_LEN {
            return;
        }
        out.truncate(start);
    }
    write_hash(out, text.as_bytes());
}

fn write_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(index) = rest.bytes().position(|byte| IS_ESCAPED[usize::from(byte)]) {
        out.push_str(&rest[..index]);
        out.push('%');
        push_byte(out, rest.as_bytes()[index]);
        rest = &rest[index + 1..];
    }
    out.push_str(rest);
}

/// Appends two upper-case hex digits.
pub(crate) fn push_byte(out: &mut String, byte: u8) {
    let byte = usize::from(byte);
    out.extend([UPPER_HEX[byte >> 4], UPPER_HEX[byte & 15]]);
}

const UPPER_HEX: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
const LOWER_HEX: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

/// `true` for bytes that have a meaning in keys or are not printable. All are ASCII, so none is part of a multi-byte
/// UTF-8 character.
const IS_ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = matches!(byte as u8, b'%' | b'{' | b'}' | b'|' | b'=' | b'#' | b'\0'..=b' ' | b'\x7f');
        byte += 1;
    }
    table
};

/// Appends 128 bits of the SHA-256. `%h` is not an escape, so no escaped string contains it.
pub(crate) fn write_hash(out: &mut String, text: &[u8]) {
    let digest = Sha256::digest(text);
    out.push_str("%h");
    push_hex(out, &digest[..16]);
}

/// Appends two lower-case hex digits per byte.
pub(crate) fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        out.extend([LOWER_HEX[usize::from(byte >> 4)], LOWER_HEX[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(domain: &str, entries: &[(String, String)]) -> String {
        sharded(ShardBy::FirstEntry, domain, entries)
    }

    fn sharded(shard_by: ShardBy, domain: &str, entries: &[(String, String)]) -> String {
        let mut out = String::new();
        let context = KeyContext { domain, shard_by, fingerprint: "fw:1/1" };
        write_key(&mut out, &context, entries.iter().map(|(k, v)| KeyPart::Request(k, v)));
        out
    }

    fn entries(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    #[test]
    fn keys_read_like_the_descriptor() {
        let pairs = entries(&[("tenant", "a b"), ("path", "/v1")]);
        assert_eq!(key("edge", &pairs), "{edge|tenant=a%20b}|path=/v1#fw:1/1");
        assert_eq!(key("edge", &entries(&[("ip", "")])), "{edge|ip=}#fw:1/1");
    }

    #[test]
    fn the_braces_hold_the_part_that_decides_the_slot() {
        let pairs = entries(&[("tenant", "a"), ("path", "/v1")]);
        let table = [
            (ShardBy::Domain, "{edge}|tenant=a|path=/v1#fw:1/1", "{edge}|tenant=a#fw:1/1"),
            (ShardBy::FirstEntry, "{edge|tenant=a}|path=/v1#fw:1/1", "{edge|tenant=a}#fw:1/1"),
            (ShardBy::Descriptor, "{edge|tenant=a|path=/v1}#fw:1/1", "{edge|tenant=a}#fw:1/1"),
        ];
        for (shard_by, of_two, of_one) in table {
            assert_eq!(sharded(shard_by, "edge", &pairs), of_two);
            assert_eq!(sharded(shard_by, "edge", &pairs[..1]), of_one);
        }
    }

    #[test]
    fn the_counters_of_a_limit_differ_in_values_only() {
        let fixed = |shard_by, pairs: &[(&str, &str)]| {
            let key = sharded(shard_by, "edge", &entries(pairs));
            without_values(&key).map(|part| String::from_utf8_lossy(part).into_owned()).collect::<Vec<_>>()
        };
        let long = "x".repeat(60);
        let all_hashed: Vec<_> = (0..9).map(|_| ("k", long.as_str())).collect();
        for shard_by in [ShardBy::Domain, ShardBy::FirstEntry, ShardBy::Descriptor] {
            let one = fixed(shard_by, &[("tenant", "a b"), ("path", "/v1#|={}")]);
            assert_eq!(one, ["{edge", "tenant", "path", "fw:1/1"], "{shard_by:?}");
            assert_eq!(one, fixed(shard_by, &[("tenant", &"b".repeat(99)), ("path", "")]));
            assert_eq!(fixed(shard_by, &all_hashed), ["{edge", "k", "fw:1/1"], "{shard_by:?}");
        }
    }

    #[test]
    fn only_the_fingerprint_says_that_all_regions_share_a_counter() {
        let of = |fingerprint| {
            let mut out = "prefix#g:".to_owned();
            let context = KeyContext { domain: "g:#g:", shard_by: ShardBy::FirstEntry, fingerprint };
            write_key(&mut out, &context, [KeyPart::Request("#g:", "#g:")].into_iter());
            out
        };
        assert!(is_global_key(&of("g:fw:1/1")));
        for local in [of("fw:1/1"), of("o:fw:1/1"), of(""), "g:".to_owned(), "{|hold=g:}#hold".to_owned()] {
            assert!(!is_global_key(&local), "{local}");
        }
    }

    #[test]
    fn keys_are_bounded() {
        let long = "x{".repeat(5_000);
        let many: Vec<_> = (0..50).map(|i| (format!("k{i}"), long.clone())).collect();
        assert!(key(&long, &many).len() < 512);
        assert_ne!(key("d", &entries(&[("k", &long)])), key("d", &entries(&[("k", &long[1..])])));
    }

    #[test]
    fn a_part_that_is_too_long_when_escaped_is_hashed_as_it_is() {
        let hash = |text: &str| {
            let mut out = String::new();
            write_hash(&mut out, text.as_bytes());
            out
        };
        let table = [
            // value, and its form in the key
            ("a".repeat(64), "a".repeat(64)),
            ("a".repeat(65), hash(&"a".repeat(65))),
            ("%".repeat(21), "%25".repeat(21)),
            ("%".repeat(22), hash(&"%".repeat(22))),
            ("%".repeat(16_384), hash(&"%".repeat(16_384))),
            ("\u{fc}".repeat(33), hash(&"\u{fc}".repeat(33))),
        ];
        for (value, written) in table {
            assert_eq!(key("d", &entries(&[("k", &value)])), format!("{{d|k={written}}}#fw:1/1"));
        }
        // SHA-256 of "abc", from FIPS 180.
        assert_eq!(hash("abc"), "%hba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn a_pattern_that_reaches_into_the_key_shares_only_within_the_key() {
        let written = |part: KeyPart<'_>| {
            let mut out = String::new();
            write_part(&mut out, part);
            out
        };
        let parts = [
            KeyPart::Request("a", "b*"),
            KeyPart::Request("a", "b*%*"),
            KeyPart::Request("a", "b*%**"),
            KeyPart::Rule("a", "b*"),
            KeyPart::Pattern("a", "b*"),
            KeyPart::Pattern("a_b", "b*"),
        ];
        let texts: std::collections::BTreeSet<_> = parts.into_iter().map(written).collect();
        assert_eq!(texts.len(), parts.len(), "{texts:?}");
    }

    #[test]
    fn a_long_value_never_shares_a_key_with_the_escaped_form_of_another() {
        let (short, long) = (" ".repeat(30), "%20".repeat(30));
        assert_ne!(key("d", &entries(&[("k", &short)])), key("d", &entries(&[("k", &long)])));
    }

    proptest! {
        #[test]
        fn different_descriptors_never_share_a_key(
            a in proptest::collection::vec(("[a_|={}%#h]{0,3}", "[b_|={}%#h]{0,3}"), 0..4),
            b in proptest::collection::vec(("[a_|={}%#h]{0,3}", "[b_|={}%#h]{0,3}"), 0..4),
        ) {
            for &shard_by in <ShardBy as strum::VariantArray>::VARIANTS {
                prop_assert_eq!(a == b, sharded(shard_by, "d", &a) == sharded(shard_by, "d", &b));
            }
        }
    }
}
