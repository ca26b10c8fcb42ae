//! The tables of all keys of rule files. Readers check files against them for unknown keys, misplaced keys and wrong
//! types, and the JSON Schema is generated from them.

mod key;
mod limit_fields;

use engine::{LimitError, PauseScope, ShardBy};
use strum::VariantNames as _;

pub(crate) use self::key::{Key, PlainValue, Section, ValueType};
pub(crate) use self::limit_fields::{Explain, LIMIT_FIELDS, LimitField, Rlconfig, WrittenFields, tiers};

pub(crate) fn key_of(error: &LimitError) -> &'static str {
    match error {
        LimitError::LogTooLong { .. } | LimitError::TooLarge { .. } => "requests_per_unit",
        LimitError::ZeroBurst | LimitError::RefillTooLong { .. } => "burst",
        LimitError::SettledQueue => "settle",
        LimitError::CalendarAlgorithm { .. } => "calendar",
        LimitError::CountAlgorithm { .. } => "count",
        LimitError::LongHold { .. } => "unit",
        LimitError::Concurrency { option, .. } => option,
    }
}

pub(crate) fn all() -> impl Iterator<Item = Key> {
    LIMIT_FIELDS.iter().map(LimitField::key).chain(KEYS.iter().copied())
}

pub(crate) fn find(section: Section, name: &str) -> Option<Key> {
    if section == Section::RateLimit {
        return LIMIT_FIELDS.iter().find(|field| field.name == name).map(LimitField::key);
    }
    KEYS.iter().copied().find(|key| key.section == section && key.name == name)
}

/// `true` if the value is a map, so that the values of repeated keys are merged.
pub(crate) fn is_merged(name: &str) -> bool {
    let mut keys = all().filter(|key| key.name == name);
    keys.any(|key| matches!(key.value_type, ValueType::Map(_) | ValueType::FreeMap | ValueType::Tiers))
}

pub(crate) fn names(section: Section) -> Vec<&'static str> {
    all().filter(|key| key.section == section).map(|key| key.name).collect()
}

pub(crate) fn sections_of(name: &str) -> Vec<Section> {
    all().filter(|key| key.name == name).map(|key| key.section).collect()
}

const fn key(section: Section, name: &'static str, value_type: ValueType, doc: &'static str) -> Key {
    Key { section, name, value_type, doc }
}

const DAY_S: u64 = 86_400;
const OF: &str =
    "The key of the entry whose value is blocked. Default: the only entry of the rule without a value.";
const SCOPE: &str = "What is blocked. rule: descriptors of this rule (default). domain: all descriptors of the domain with this value.";

/// The keys of every section but those of a limit.
const KEYS: &[Key] = &[
    key(
        Section::File,
        "domain",
        ValueType::Text,
        "The domain that callers send. One file per domain, unless rules.merge_domains is on.",
    ),
    key(
        Section::File,
        "shard_by",
        ValueType::Choice(ShardBy::VARIANTS),
        "The default of shard_by for the rules of this domain, and for limits that come with requests.",
    ),
    key(
        Section::File,
        "descriptors",
        ValueType::List(Section::Descriptor),
        "The first level of the rule tree: it is matched against the first entry of a descriptor.",
    ),
    key(Section::Descriptor, "key", ValueType::Text, "The key of the entry to match."),
    key(
        Section::Descriptor,
        "value",
        ValueType::Text,
        "The value of the entry to match. `*` stands for any text. Without a value every value matches, and each value has a counter of its own. Each level prefers the exact value, then the wildcards in the order of the file, then the key without a value. The choice of a level is final: the search does not return to it.",
    ),
    key(
        Section::Descriptor,
        "rate_limit",
        ValueType::Map(Section::RateLimit),
        "The limit of descriptors that end here. An exact value without a limit is exempt.",
    ),
    key(
        Section::Descriptor,
        "rate_limits",
        ValueType::List(Section::RateLimit),
        "Several limits of descriptors that end here, all applied, each with a counter of its own (10 per second and 1000 per hour).",
    ),
    key(
        Section::Descriptor,
        "descriptors",
        ValueType::List(Section::Descriptor),
        "The next level of the rule tree: it is matched against the next entry.",
    ),
    key(Section::Descriptor, "shadow_mode", ValueType::Flag, "Count and report, but never deny."),
    key(
        Section::Descriptor,
        "quota_mode",
        ValueType::Flag,
        "Deny only if every quota rule of the request is over its limit.",
    ),
    key(
        Section::Descriptor,
        "detailed_metric",
        ValueType::Flag,
        "Count under the values of the request in the metrics of envoyproxy/ratelimit, at every level of the path; metrics.values_per_rule bounds the number of series.",
    ),
    key(
        Section::Descriptor,
        "value_to_metric",
        ValueType::Flag,
        "Count under the value of the request in the metrics of envoyproxy/ratelimit, at this level of the path; metrics.values_per_rule bounds the number of series.",
    ),
    key(
        Section::Descriptor,
        "share_threshold",
        ValueType::Flag,
        "true: all values that match this wildcard share one counter. false: each value has its own, so a caller who can choose the value gets the whole limit for each value. Without the key it is false, with a warning.",
    ),
    key(
        Section::Descriptor,
        "secret",
        ValueType::Flag,
        "The values of this key are secret (tokens, API keys): everywhere in this domain a keyed hash stands in place of the value, in counter keys, on pages, in metadata and in names of rules. Needs the setting secrets.key or secrets.key_file. A change starts fresh counters.",
    ),
    key(
        Section::Descriptor,
        "tier",
        ValueType::Flag,
        "The value of this entry is the name of a tier, which selects the number of the limits below it (tiers). The entry is then no part of the counter's key, so that another tier goes on with the same counter.",
    ),
    key(
        Section::Descriptor,
        "shard_by",
        ValueType::Choice(ShardBy::VARIANTS),
        "The part of a descriptor that selects the slot of its counters in a Redis Cluster. first_entry: domain and first entry (default). domain: the domain alone, so that one node has all its counters. descriptor: all entries. Counters of one slot are decided in one step. A change starts fresh counters.",
    ),
    key(
        Section::Descriptor,
        "metadata",
        ValueType::FreeMap,
        "Sent back with the answer in dynamic_metadata.",
    ),
    key(
        Section::Tier,
        "requests_per_unit",
        ValueType::Units,
        "Units per period for the tier, in the range of those of the limit. 0 blocks everything.",
    ),
    key(
        Section::Tier,
        "burst",
        ValueType::Integer(1),
        "Units that an idle key of the tier may take at once: gcra, token_bucket and leaky_bucket only.",
    ),
    key(
        Section::Penalty,
        "after",
        ValueType::Integer(1),
        "This many denials of one value within the time of within ban it: 1 to 1,000.",
    ),
    key(
        Section::Penalty,
        "within",
        ValueType::Duration(DAY_S),
        "The time in which denials are counted: 1s to 1d.",
    ),
    key(
        Section::Penalty,
        "for",
        ValueType::Duration(30 * DAY_S),
        "How long the first ban lasts: at least the time of within, at most 30d.",
    ),
    key(
        Section::Penalty,
        "grow",
        ValueType::Integer(1),
        "How many times longer each further ban is: 1 to 10. Default 1.",
    ),
    key(
        Section::Penalty,
        "max",
        ValueType::Duration(30 * DAY_S),
        "The longest ban. After this time without a ban, a value starts again with the time of for. Default: that of for.",
    ),
    key(Section::Penalty, "of", ValueType::Text, OF),
    key(Section::Penalty, "scope", ValueType::Choice(PauseScope::VARIANTS), SCOPE),
    key(
        Section::Feedback,
        "max",
        ValueType::Duration(DAY_S),
        "The longest pause that a caller can report: 1s to 1d.",
    ),
    key(Section::Feedback, "of", ValueType::Text, OF),
    key(Section::Feedback, "scope", ValueType::Choice(PauseScope::VARIANTS), SCOPE),
    key(Section::Replaces, "name", ValueType::Text, "The name of the limit to leave out."),
];
