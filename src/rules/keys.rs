//! The one table of the keys of rule files. Unknown and misplaced keys, wrong types and the JSON Schema all follow
//! from it.

use crate::engine::{Algorithm, Charging, FailurePolicy, ShardBy, Unit};

/// A kind of map in a rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// The document itself.
    File,
    /// An element of `descriptors`.
    Descriptor,
    /// `rate_limit`, or an element of `rate_limits`.
    RateLimit,
    /// An element of `replaces`.
    Replaces,
}

impl Section {
    pub const ALL: [Self; 4] = [Self::File, Self::Descriptor, Self::RateLimit, Self::Replaces];

    /// What to call it in a message.
    pub fn noun(self) -> &'static str {
        match self {
            Self::File => "the top level",
            Self::Descriptor => "a descriptor",
            Self::RateLimit => "rate_limit",
            Self::Replaces => "a replaces entry",
        }
    }
}

/// What may stand under a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Text; numbers and booleans count by their spelling.
    Text,
    /// A unit of time, in any case.
    Unit,
    /// A whole number up to 2^32 - 1. The smallest useful one.
    Number(u32),
    /// A boolean.
    Flag,
    /// One of these names.
    Choice(fn() -> Vec<&'static str>),
    /// Maps in order.
    List(Section),
    /// A map.
    Map(Section),
    /// A map of anything.
    FreeMap,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Where it belongs.
    pub section: Section,
    pub name: &'static str,
    pub kind: Kind,
    /// For the people who write rule files.
    pub doc: &'static str,
}

impl Key {
    /// The key of that name where it belongs to `section`.
    pub fn find(section: Section, name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.section == section && key.name == name)
    }

    /// Whether the value of a key of that name is a map, which repeated and merged keys make together.
    pub fn is_joined(name: &str) -> bool {
        KEYS.iter().any(|key| key.name == name && matches!(key.kind, Kind::Map(_) | Kind::FreeMap))
    }

    /// The names of all keys of a section.
    pub fn names(section: Section) -> Vec<&'static str> {
        KEYS.iter().filter(|key| key.section == section).map(|key| key.name).collect()
    }

    /// The sections that a key of that name belongs to: none where there is no such key.
    pub fn homes(name: &str) -> Vec<Section> {
        KEYS.iter().filter(|key| key.name == name).map(|key| key.section).collect()
    }
}

/// The `refill` that is not the default.
pub(super) const INTERVAL: &str = "interval";
/// The `mode` that is not the default.
pub(super) const QUEUE: &str = "queue";

fn algorithms() -> Vec<&'static str> {
    Algorithm::ALL.map(Algorithm::name).to_vec()
}

fn chargings() -> Vec<&'static str> {
    [Charging::Prepaid, Charging::Postpaid].map(Charging::name).to_vec()
}

fn policies() -> Vec<&'static str> {
    FailurePolicy::ALL.map(FailurePolicy::name).to_vec()
}

fn shard_bys() -> Vec<&'static str> {
    ShardBy::ALL.map(ShardBy::name).to_vec()
}

fn refills() -> Vec<&'static str> {
    vec!["continuous", INTERVAL]
}

fn modes() -> Vec<&'static str> {
    vec!["meter", QUEUE]
}

/// The names of all units, for messages and the schema.
pub(super) fn units() -> Vec<&'static str> {
    Unit::ALL.map(Unit::name).to_vec()
}

const fn key(section: Section, name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { section, name, kind, doc }
}

/// Every key there is.
pub(super) const KEYS: &[Key] = &[
    key(
        Section::File,
        "domain",
        Kind::Text,
        "The domain that callers send. One file per domain, unless rules.merge_domains is on.",
    ),
    key(
        Section::File,
        "shard_by",
        Kind::Choice(shard_bys),
        "What the rules of this domain are that do not say: see shard_by of a descriptor. It also holds for limits that come with requests.",
    ),
    key(
        Section::File,
        "descriptors",
        Kind::List(Section::Descriptor),
        "The first level of the rule tree: it is matched against the first entry of a descriptor.",
    ),
    key(Section::Descriptor, "key", Kind::Text, "The key of the entry to match."),
    key(
        Section::Descriptor,
        "value",
        Kind::Text,
        "The value of the entry to match. `*` stands for any text. Without a value every value matches, each counted apart. At each level the exact value wins, then the wildcards in the order of the file, then the key without a value; there is no going back.",
    ),
    key(
        Section::Descriptor,
        "rate_limit",
        Kind::Map(Section::RateLimit),
        "The limit of descriptors that end here. An exact value without a limit is exempt.",
    ),
    key(
        Section::Descriptor,
        "rate_limits",
        Kind::List(Section::RateLimit),
        "Several limits of descriptors that end here, all applied, each with a counter of its own (10 per second and 1000 per hour).",
    ),
    key(
        Section::Descriptor,
        "descriptors",
        Kind::List(Section::Descriptor),
        "The next level of the rule tree: it is matched against the next entry.",
    ),
    key(Section::Descriptor, "shadow_mode", Kind::Flag, "Count and report, but never deny."),
    key(
        Section::Descriptor,
        "quota_mode",
        Kind::Flag,
        "Deny only if every quota rule of the request is over its limit.",
    ),
    key(
        Section::Descriptor,
        "detailed_metric",
        Kind::Flag,
        "Accepted so that existing files load. Metric labels never hold values of requests, so it changes nothing.",
    ),
    key(
        Section::Descriptor,
        "value_to_metric",
        Kind::Flag,
        "Accepted so that existing files load. Metric labels never hold values of requests, so it changes nothing.",
    ),
    key(
        Section::Descriptor,
        "share_threshold",
        Kind::Flag,
        "All values that match this wildcard share one counter.",
    ),
    key(
        Section::Descriptor,
        "shard_by",
        Kind::Choice(shard_bys),
        "What of a descriptor decides on which node of a Redis Cluster its counters are kept. first_entry: domain and first entry (default). domain: the domain alone, so that all of it is on one node. descriptor: all entries. Counters that are kept together are decided in one step. Changing it starts fresh counters.",
    ),
    key(Section::Descriptor, "metadata", Kind::FreeMap, "Sent back with the answer in dynamic_metadata."),
    key(
        Section::RateLimit,
        "requests_per_unit",
        Kind::Number(0),
        "Units (requests, tokens, bytes) per period. 0 blocks everything.",
    ),
    key(Section::RateLimit, "unit", Kind::Unit, "The period. A month has 30 days, a year 365."),
    key(
        Section::RateLimit,
        "unit_multiplier",
        Kind::Number(1),
        "How many units make the period: 10 with unit minute is ten minutes. At most 366 days in all. Default 1.",
    ),
    key(Section::RateLimit, "unlimited", Kind::Flag, "Never counted, always admitted."),
    key(
        Section::RateLimit,
        "algorithm",
        Kind::Choice(algorithms),
        "How to count. A limit that names an algorithm is prepaid unless charging says otherwise; one that does not counts in fixed windows, postpaid, unless the settings say otherwise.",
    ),
    key(
        Section::RateLimit,
        "burst",
        Kind::Number(1),
        "Units that an idle key may take at once: gcra, token_bucket and leaky_bucket only. Default: requests_per_unit.",
    ),
    key(
        Section::RateLimit,
        "refill",
        Kind::Choice(refills),
        "token_bucket only. continuous: tokens flow in evenly (default). interval: requests_per_unit tokens arrive at the end of every period, up to burst.",
    ),
    key(
        Section::RateLimit,
        "mode",
        Kind::Choice(modes),
        "leaky_bucket only. meter: a hit fits or it does not (default). queue: a hit that fits is admitted with the delay to wait.",
    ),
    key(
        Section::RateLimit,
        "charging",
        Kind::Choice(chargings),
        "prepaid: a hit that is denied is not counted. postpaid: every hit is counted, for costs known only afterwards.",
    ),
    key(
        Section::RateLimit,
        "on_store_failure",
        Kind::Choice(policies),
        "What to answer when the store cannot: allow, deny, decide from local memory, or fail the call.",
    ),
    key(
        Section::RateLimit,
        "name",
        Kind::Text,
        "Sent back with the answer, the label of its metrics, and what replaces refers to.",
    ),
    key(
        Section::RateLimit,
        "replaces",
        Kind::List(Section::Replaces),
        "Limits that are left out when this one matches in the same request.",
    ),
    key(Section::Replaces, "name", Kind::Text, "The name of the limit to leave out."),
];
