//! Masks keys for display: values from rule files are shown, all others as their beginning and a tag. Tags are keyed:
//! without the key nobody can try out values. Secret values are hashed before a counter gets its key, so they never get
//! here.

use base::hex;
use engine::{HashKey, KeyText, KeyValue, ParsedKey, RuleSet, Step, parse_key};

/// Shorter values show only their tag.
const SHORTEST_SHOWN: usize = 6;
/// Characters shown of a value.
const SHOWN_CHARS: usize = 2;
/// Hexadecimal digits shown of a tag: too few to identify a value elsewhere.
const TAG_DIGITS: usize = 4;
/// Characters shown of a hash.
const HASH_CHARS: usize = 10;
pub(super) const ID_DIGITS: usize = 12;
/// Start of a secret value's hash.
const SECRET_MARK: &str = "%k";
/// Name of entries that are hashed together.
const FURTHER_ENTRIES: &str = "…";

/// A key as shown in the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MaskedKey {
    pub(super) entries: Vec<(String, String)>,
    /// `true` if any value is secret.
    pub(super) is_secret: bool,
}

pub(super) fn row_id(tag_key: &HashKey, key: &str) -> String {
    hex(&tag_key.tag(&["row", key])[..ID_DIGITS / 2])
}

/// Masks a counter key by the current rules.
pub(super) fn masked(tag_key: &HashKey, rules: &RuleSet, key: &str) -> MaskedKey {
    let Some(parsed) = parse_key(key) else {
        return MaskedKey {
            entries: vec![(FURTHER_ENTRIES.to_owned(), tag(tag_key, &[key]))],
            is_secret: false,
        };
    };
    let domain = parsed.domain.text();
    let public = public_values(&parsed, rules);
    let entries = parsed.entries.iter().enumerate().map(|(index, (name, value))| {
        let is_public = public.get(index).copied().unwrap_or(false);
        (name.text().to_owned(), shown(tag_key, [domain, name.text()], value, is_public))
    });
    let further = parsed.tail.as_ref().map(|hash| (FURTHER_ENTRIES.to_owned(), shortened(hash)));
    let is_secret = parsed.entries.iter().any(|(_, value)| matches!(value, KeyValue::Secret(_)));
    MaskedKey { entries: entries.chain(further).collect(), is_secret }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    pub name: String,
    /// The start of its hash if the value is secret or very long.
    pub value: String,
    /// `true` if `value` is the requests' value; `false` for a hash or a pattern.
    pub is_exact: bool,
}

/// Returns a counter key's entries with their values. Secret values and hashes stay as they are.
pub(super) fn unmasked(key: &str) -> Vec<KeyEntry> {
    let Some(parsed) = parse_key(key) else { return Vec::new() };
    let entries = parsed.entries.into_iter().map(|(name, value)| {
        let (value, is_exact) = match value {
            KeyValue::Plain(value) => (value, true),
            KeyValue::Shared(pattern) => (pattern.text().to_owned(), false),
            KeyValue::Hashed(hash) | KeyValue::Secret(hash) => (shortened(&hash), false),
        };
        KeyEntry { name: name.text().to_owned(), value, is_exact }
    });
    let further = parsed.tail.map(|hash| KeyEntry {
        name: FURTHER_ENTRIES.to_owned(),
        value: shortened(&hash),
        is_exact: false,
    });
    entries.chain(further).collect()
}

/// Returns which entries have a value that is in the rule files.
fn public_values(parsed: &ParsedKey, rules: &RuleSet) -> Vec<bool> {
    let KeyText::Plain(domain) = &parsed.domain else { return Vec::new() };
    let Some(domain) = rules.domain(domain) else { return Vec::new() };
    let walk = domain.walk(&parsed.to_entries(), &mut String::new());
    walk.steps.iter().map(|step| matches!(step, Step::Exact(_))).collect()
}

fn shown(tag_key: &HashKey, names: [&str; 2], value: &KeyValue, is_public: bool) -> String {
    match value {
        KeyValue::Plain(value) if is_public || value.is_empty() => value.clone(),
        KeyValue::Plain(value) => {
            let tag = tag(tag_key, &[names[0], names[1], value]);
            match value.chars().count() {
                0..SHORTEST_SHOWN => tag,
                _ => format!("{}…{tag}", value.chars().take(SHOWN_CHARS).collect::<String>()),
            }
        }
        KeyValue::Shared(pattern) => pattern.text().to_owned(),
        KeyValue::Hashed(hash) | KeyValue::Secret(hash) => shortened(hash),
    }
}

/// Masks an exception's value, which may be a hash.
pub(super) fn masked_value(tag_key: &HashKey, domain: &str, key: &str, value: &str) -> String {
    let kind = if value.starts_with(SECRET_MARK) { KeyValue::Secret } else { KeyValue::Plain };
    shown(tag_key, [domain, key], &kind(value.to_owned()), false)
}

fn tag(tag_key: &HashKey, texts: &[&str]) -> String {
    let texts: Vec<_> = ["value"].iter().chain(texts).copied().collect();
    format!("#{}", hex(&tag_key.tag(&texts)[..TAG_DIGITS / 2]))
}

fn shortened(hash: &str) -> String {
    format!("{}…", hash.chars().take(HASH_CHARS).collect::<String>())
}
