//! Replaces secret values by a keyed hash (HMAC-SHA-256), in counter keys and wherever an entry is shown.
//!
//! Whether a value is secret depends only on the domain and the entry, not on the entry's position or on whether the
//! descriptor matches a rule: a token in the wrong position is still a token.

use std::fmt;

use hashbrown::HashSet;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::limit::key::{Entry, push_hex};
use crate::rules::spec::{CompileError, NodeSpec};
use crate::rules::wildcards::{Pattern, Wildcards};

/// Prefix of a hash. Counter keys escape `%` in plain values, so no plain value produces it there.
const MARK: &str = "%k";
/// Bytes of the hash that are kept, as for the hash of a long value.
const HASH_BYTES: usize = 16;

/// `true` if a text looks like the hash that stands for a secret value. A value of a request can look like one, too.
pub fn is_hidden_value(text: &str) -> bool {
    text.strip_prefix(MARK)
        .is_some_and(|hash| hash.len() == 2 * HASH_BYTES && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The key of the hashes, never displayed. Instances with the same key write the same hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; 32]);

impl HashKey {
    /// `secret` may have any length.
    pub fn new(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Derives an independent key for `purpose`.
    pub fn derived(&self, purpose: &str) -> Self {
        Self(self.tag(&[purpose]))
    }

    /// HMAC-SHA-256 of strings in order. Without the key nobody can guess the strings of a tag.
    pub fn tag(&self, texts: &[&str]) -> [u8; 32] {
        let mut mac: Hmac<Sha256> = Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        texts.iter().for_each(|text| update_with(&mut mac, text));
        mac.finalize().into_bytes().into()
    }
}

/// Hashes a string with its length, so that a character cannot move from one string to the next.
fn update_with(mac: &mut Hmac<Sha256>, text: &str) {
    mac.update(&(text.len() as u64).to_be_bytes());
    mac.update(text.as_bytes());
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// Which values are hashed besides those that rules mark, and the key of the hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueHashing {
    /// Required if anything is hashed.
    pub key: Option<HashKey>,
    /// `true`: every value of every request is hashed.
    pub all_values: bool,
}

impl ValueHashing {
    pub const NONE: Self = Self { key: None, all_values: false };
}

/// The secret values of one domain, or of the domains without rules.
#[derive(Clone, Debug)]
pub(crate) struct SecretValues {
    marked: MarkedEntries,
    all_values: bool,
    hasher: ValueHasher,
}

impl SecretValues {
    /// Collects the values that nodes in `levels` and below mark, and those of `hashing`; `None` if there are none.
    pub(crate) fn new<'s>(
        levels: impl IntoIterator<Item = &'s [NodeSpec]>,
        hashing: ValueHashing,
    ) -> Result<Option<Self>, CompileError> {
        let mut nodes = Vec::new();
        levels.into_iter().for_each(|level| collect_secret_nodes(level, &mut nodes));
        if nodes.is_empty() && !hashing.all_values {
            return Ok(None);
        }
        let key = hashing.key.ok_or(CompileError::NoHashKey)?;
        let marked = MarkedEntries::new(&nodes);
        Ok(Some(Self { marked, all_values: hashing.all_values, hasher: ValueHasher::new(key) }))
    }

    /// The hash of the entry's value if it is secret.
    pub(crate) fn hidden_value(&self, domain: &str, entry: &Entry, scratch: &mut String) -> Option<Box<str>> {
        let Entry { key, value } = entry;
        let is_secret = self.all_values || self.marked.contain(key, value, scratch);
        is_secret.then(|| self.hasher.hash(domain, key, value))
    }

    /// The hash of a rule's value if it is secret. Values of rules are public unless a rule marks them, and a
    /// wildcard's pattern is not a value.
    pub(crate) fn hidden_rule_value(&self, domain: &str, spec: &NodeSpec) -> Option<Box<str>> {
        let NodeSpec { key, value, .. } = spec;
        let is_value = !value.is_empty() && !key.contains('*') && !value.contains('*');
        let is_secret = is_value && self.marked.contain(key, value, &mut String::new());
        is_secret.then(|| self.hasher.hash(domain, key, value))
    }

    /// The hashes of all secret values of a request.
    pub(crate) fn hidden_values<'e>(
        &self,
        domain: &str,
        descriptors: impl Iterator<Item = &'e [Entry]>,
    ) -> HiddenValues {
        let (mut scratch, mut hidden) = (String::new(), Vec::new());
        for (descriptor, entries) in descriptors.enumerate() {
            for (index, entry) in entries.iter().enumerate() {
                if let Some(hash) = self.hidden_value(domain, entry, &mut scratch) {
                    hidden.push(HiddenValue { place: (descriptor, index), hash });
                }
            }
        }
        HiddenValues(hidden)
    }
}

fn collect_secret_nodes<'s>(level: &'s [NodeSpec], nodes: &mut Vec<&'s NodeSpec>) {
    for spec in level {
        if spec.secret {
            nodes.push(spec);
        }
        collect_secret_nodes(&spec.descriptors, nodes);
    }
}

/// The entries that secret nodes can match at any level of the tree, and all other entries with their keys.
#[derive(Clone, Debug)]
struct MarkedEntries {
    /// Keys and composites of the nodes. A node matches an entry whose `key_value`, or whose bare key, is its
    /// composite.
    names: HashSet<Box<str>>,
    wildcards: Wildcards,
}

impl MarkedEntries {
    fn new(nodes: &[&NodeSpec]) -> Self {
        let names = nodes.iter().flat_map(|spec| [spec.key.clone(), spec.composite()]);
        let patterns = nodes.iter().filter_map(|spec| Pattern::new(&spec.composite()));
        Self { names: names.map(Into::into).collect(), wildcards: Wildcards::new(patterns.collect()) }
    }

    fn contain(&self, key: &str, value: &str, scratch: &mut String) -> bool {
        if self.names.contains(key) {
            return true;
        }
        scratch.clear();
        scratch.extend([key, "_", value]);
        self.names.contains(scratch.as_str()) || self.wildcards.first_match(scratch).is_some()
    }
}

/// Domain and key are hashed with the value, so that equal values in other domains or under other keys have other
/// hashes.
#[derive(Clone)]
struct ValueHasher(Hmac<Sha256>);

impl ValueHasher {
    fn new(HashKey(key): HashKey) -> Self {
        Self(Hmac::new_from_slice(&key).expect("HMAC takes keys of any length"))
    }

    fn hash(&self, domain: &str, key: &str, value: &str) -> Box<str> {
        let mut mac = self.0.clone();
        update_with(&mut mac, domain);
        update_with(&mut mac, key);
        mac.update(value.as_bytes());
        let digest = mac.finalize().into_bytes();
        let mut text = String::with_capacity(MARK.len() + 2 * HASH_BYTES);
        text.push_str(MARK);
        push_hex(&mut text, &digest[..HASH_BYTES]);
        text.into()
    }
}

impl fmt::Debug for ValueHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueHasher")
    }
}

/// The hashes of a request's secret values. Empty, without an allocation, if no value is secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HiddenValues(Vec<HiddenValue>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HiddenValue {
    /// Indexes of descriptor and entry. The values are sorted by it.
    place: (usize, usize),
    hash: Box<str>,
}

impl HiddenValues {
    pub(crate) fn get(&self, descriptor: usize, entry: usize) -> Option<&str> {
        let found = self.0.binary_search_by_key(&(descriptor, entry), |hidden| hidden.place);
        found.ok().map(|index| self.0[index].hash.as_ref())
    }
}

#[cfg(test)]
mod tests;
