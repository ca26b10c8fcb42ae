//! The table of all keys of rule files. The reader checks files against it, for unknown keys, misplaced keys and wrong
//! types. The JSON Schema is generated from it.

use engine::{Algorithm, Charging, FailurePolicy, LimitError, OnOver, Pacing, Refill, ShardBy};
use strum::VariantNames as _;

/// A kind of map in a rule file, with keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// The whole document.
    File,
    /// An element of `descriptors`.
    Descriptor,
    /// `rate_limit`, or an element of `rate_limits`.
    RateLimit,
    /// An element of `replaces`.
    Replaces,
    /// A value in `tiers`.
    Tier,
}

impl Section {
    pub const ALL: [Self; 5] = [Self::File, Self::Descriptor, Self::RateLimit, Self::Replaces, Self::Tier];

    /// The section's name in messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::File => "the top level",
            Self::Descriptor => "a descriptor",
            Self::RateLimit => "rate_limit",
            Self::Replaces => "a replaces entry",
            Self::Tier => "a tier",
        }
    }
}

/// The key that an error of a limit is about.
pub(super) fn key_of(error: &LimitError) -> &'static str {
    match error {
        LimitError::LogTooLong { .. } | LimitError::TooLarge { .. } => "requests_per_unit",
        LimitError::ZeroBurst | LimitError::RefillTooLong { .. } => "burst",
        LimitError::SettledQueue => "settle",
        LimitError::CalendarAlgorithm { .. } => "calendar",
    }
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueType {
    /// Text; numbers and booleans are taken as they are spelt.
    Text,
    /// A unit of time; upper and lower case are the same.
    Unit,
    /// A whole number up to 2^32 - 1. The number is the minimum in the JSON Schema.
    Integer(u32),
    /// A number of units: a whole number up to [`engine::MAX_LIMIT`].
    Units,
    /// A number from 0 to 1, taken from its decimal digits.
    Share,
    Flag,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// A list of maps of this kind.
    List(Section),
    Map(Section),
    /// A map with any keys and values.
    FreeMap,
    /// A map from names of tiers to their numbers.
    Tiers,
}

/// One key of rule files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub section: Section,
    pub name: &'static str,
    pub value_type: ValueType,
    /// The description in the JSON Schema.
    pub doc: &'static str,
}

impl Key {
    pub fn find(section: Section, name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.section == section && key.name == name)
    }

    /// Whether the value is a map, so that the values of repeated keys are merged.
    pub fn is_merged(name: &str) -> bool {
        KEYS.iter().any(|key| {
            key.name == name
                && matches!(key.value_type, ValueType::Map(_) | ValueType::FreeMap | ValueType::Tiers)
        })
    }

    /// The names of all keys of a section.
    pub fn names(section: Section) -> Vec<&'static str> {
        KEYS.iter().filter(|key| key.section == section).map(|key| key.name).collect()
    }

    /// The sections that have a key `name`.
    pub fn sections_of(name: &str) -> Vec<Section> {
        KEYS.iter().filter(|key| key.name == name).map(|key| key.section).collect()
    }
}

const fn key(section: Section, name: &'static str, value_type: ValueType, doc: &'static str) -> Key {
    Key { section, name, value_type, doc }
}

/// Every key of every section.
pub(super) const KEYS: &[Key] = &[
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
        Section::RateLimit,
        "requests_per_unit",
        ValueType::Units,
        "Units (requests, tokens, bytes) per period. 0 blocks everything. At most 2^52 for fixed_window, 2^46 for sliding_window, 10,000 for sliding_log, else 2^32 - 1. A change keeps the used units; gcra, token_bucket and leaky_bucket keep the used share, and with refill: interval counters start unused.",
    ),
    key(
        Section::RateLimit,
        "unit",
        ValueType::Unit,
        "The period. Without calendar a month has 30 days and a year 365, and windows are counted from the Unix epoch.",
    ),
    key(
        Section::RateLimit,
        "calendar",
        ValueType::Text,
        "A time zone such as Europe/Berlin or UTC: the windows are the days, weeks, months or years of its calendar. Needs algorithm fixed_window, unit day, week, month or year, and unit_multiplier 1. Another zone starts a fresh counter.",
    ),
    key(
        Section::RateLimit,
        "starts",
        ValueType::Text,
        "With calendar, the first day of each window. Month: a day from 1 to 31, and a shorter month starts on its last day (default 1). Week: a weekday (default monday). Year: month and day, such as 04-01 (default 01-01). Another start starts a fresh counter.",
    ),
    key(
        Section::RateLimit,
        "unit_multiplier",
        ValueType::Integer(1),
        "How many units make the period: 10 with unit minute is ten minutes. At most 366 days in all. Default 1.",
    ),
    key(Section::RateLimit, "unlimited", ValueType::Flag, "Never counted, always admitted."),
    key(
        Section::RateLimit,
        "algorithm",
        ValueType::Choice(Algorithm::VARIANTS),
        "How to count. A limit that names an algorithm is prepaid unless charging says otherwise. A limit without an algorithm has the default of the settings: fixed_window and postpaid, unless changed.",
    ),
    key(
        Section::RateLimit,
        "burst",
        ValueType::Integer(1),
        "Units that an idle key may take at once: gcra, token_bucket and leaky_bucket only. Default: requests_per_unit.",
    ),
    key(
        Section::RateLimit,
        "refill",
        ValueType::Choice(Refill::VARIANTS),
        "token_bucket only. continuous: tokens flow in evenly (default). interval: requests_per_unit tokens arrive at the end of every period, up to burst.",
    ),
    key(
        Section::RateLimit,
        "mode",
        ValueType::Choice(Pacing::VARIANTS),
        "leaky_bucket only. meter: a hit fits or it does not (default). queue: a hit that fits is admitted with the delay to wait.",
    ),
    key(
        Section::RateLimit,
        "charging",
        ValueType::Choice(Charging::VARIANTS),
        "prepaid: a hit that is denied is not counted. postpaid: every hit is counted, for costs known only afterwards.",
    ),
    key(
        Section::RateLimit,
        "settle",
        ValueType::Flag,
        "The hits of a request are an estimate. The answer has a receipt, with which the caller reports the real cost at the end: only the difference is booked, in the window of the estimate. Not for a leaky_bucket with mode: queue.",
    ),
    key(
        Section::RateLimit,
        "on_store_failure",
        ValueType::Choice(FailurePolicy::VARIANTS),
        "What to answer when the store does not: allow, deny, decide from local memory, or fail the call.",
    ),
    key(
        Section::RateLimit,
        "on_over",
        ValueType::Choice(OnOver::VARIANTS),
        "What happens to a hit that does not fit. deny: it is denied (default). announce: it is admitted, and the answer announces the limit as over, in the header of response.announce_header and in metadata. An announced limit is postpaid unless charging says otherwise.",
    ),
    key(
        Section::RateLimit,
        "near",
        ValueType::Share,
        "Answers announce the limit as near while more than this share of it is used: 0.8 is four fifths. Also for limits that deny.",
    ),
    key(
        Section::RateLimit,
        "reserve",
        ValueType::Integer(1),
        "For callers that check before a request (hits_addend 0) and charge its cost after it: the check takes this number of units, and the charge books the difference to the real cost. Only for prepaid limits.",
    ),
    key(
        Section::RateLimit,
        "name",
        ValueType::Text,
        "Sent back with the answer, the label of its metrics, and what replaces refers to.",
    ),
    key(
        Section::RateLimit,
        "replaces",
        ValueType::List(Section::Replaces),
        "Limits that are left out when this one matches in the same request.",
    ),
    key(
        Section::RateLimit,
        "tiers",
        ValueType::Tiers,
        "Other numbers for the tiers of customers, by name: a number, unlimited, or a map with requests_per_unit and burst. The tier comes from an entry with tier: true, or from a row of the exceptions. Without a tier, and for an unknown one, the number of the limit counts. burst is scaled with the number unless the tier names it.",
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
    key(Section::Replaces, "name", ValueType::Text, "The name of the limit to leave out."),
];
