//! The one spelling of counter keys: injective, bounded, readable.
//!
//! `{domain|key=value}|key=value#fingerprint`. In braces stands the part by which a Redis Cluster places a key: domain
//! and first entry, so that all counters below one tenant, user or address live together, unless the rule says
//! otherwise. Characters that mean something are escaped as `%XX`, so different descriptors never share a key. A long part
//! is replaced by its hash.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::ShardBy;

/// A part longer than this many bytes (escaped) is hashed.
const LONGEST_PART: usize = 64;
/// The entries after the first are hashed as one where they take more bytes than this.
const LONGEST_TAIL: usize = 192;

/// One entry of a counter's key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// The request's own key and value.
    Own(&'a str, &'a str),
    /// Key and value, as the rule file has them, of a wildcard whose values share the counter.
    Shared(&'a str, &'a str),
}

/// What stands in a counter's key around the entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) domain: &'a str,
    pub(super) shard_by: ShardBy,
    pub(super) fingerprint: &'a str,
}

/// Writes the key of a counter to the end of `out`. At most about 500 bytes whatever the entries hold.
pub(super) fn spell<'a>(out: &mut String, frame: &Frame<'_>, mut entries: impl Iterator<Item = Part<'a>>) {
    let close = |out: &mut String, after: ShardBy| {
        if frame.shard_by == after {
            out.push('}');
        }
    };
    out.push('{');
    part(out, frame.domain);
    close(out, ShardBy::Domain);
    if let Some(first) = entries.next() {
        entry(out, first);
    }
    close(out, ShardBy::FirstEntry);
    let tail = out.len();
    for next in entries {
        entry(out, next);
    }
    if out.len() - tail > LONGEST_TAIL {
        shorten(out, tail);
    }
    close(out, ShardBy::Descriptor);
    out.push('#');
    out.push_str(frame.fingerprint);
}

fn entry(out: &mut String, entry: Part<'_>) {
    let (Part::Own(key, value) | Part::Shared(key, value)) = entry;
    out.push('|');
    part(out, key);
    out.push('=');
    part(out, value);
    if let Part::Shared(..) = entry {
        // No escape, so no entry of a request spells it.
        out.push_str("%*");
    }
}

fn part(out: &mut String, text: &str) {
    let start = out.len();
    let mut rest = text;
    while let Some(place) = rest.bytes().position(|byte| HAS_MEANING[usize::from(byte)]) {
        out.push_str(&rest[..place]);
        // Writing to a String cannot fail.
        let _ = write!(out, "%{:02X}", rest.as_bytes()[place]);
        rest = &rest[place + 1..];
    }
    out.push_str(rest);
    if out.len() - start > LONGEST_PART {
        shorten(out, start);
    }
}

/// Whether a byte would be taken for something else than itself. All of them are characters of their own.
const HAS_MEANING: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = matches!(byte as u8, b'%' | b'{' | b'}' | b'|' | b'=' | b'#' | b'\0'..=b' ' | b'\x7f');
        byte += 1;
    }
    table
};

/// Replaces the text from `start` by 128 bits of its SHA-256. `%h` is no escape, so no plain text spells it.
fn shorten(out: &mut String, start: usize) {
    let digest = Sha256::digest(&out.as_bytes()[start..]);
    out.truncate(start);
    out.push_str("%h");
    for byte in &digest[..16] {
        let _ = write!(out, "{byte:02x}");
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
        let frame = Frame { domain, shard_by, fingerprint: "fw:1/1" };
        spell(&mut out, &frame, entries.iter().map(|(k, v)| Part::Own(k, v)));
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
    fn the_braces_hold_what_counters_are_kept_by() {
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
    fn keys_are_bounded() {
        let long = "x{".repeat(5_000);
        let many: Vec<_> = (0..50).map(|i| (format!("k{i}"), long.clone())).collect();
        assert!(key(&long, &many).len() < 512);
        assert_ne!(key("d", &entries(&[("k", &long)])), key("d", &entries(&[("k", &long[1..])])));
    }

    proptest! {
        #[test]
        fn different_descriptors_never_share_a_key(
            a in proptest::collection::vec(("[a_|={}%#h]{0,3}", "[b_|={}%#h]{0,3}"), 0..4),
            b in proptest::collection::vec(("[a_|={}%#h]{0,3}", "[b_|={}%#h]{0,3}"), 0..4),
        ) {
            for shard_by in ShardBy::ALL {
                prop_assert_eq!(a == b, sharded(shard_by, "d", &a) == sharded(shard_by, "d", &b));
            }
        }
    }
}
