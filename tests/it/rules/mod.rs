//! Rule files: messages, matching, reloading, the example files, the schema.

mod decisions;
mod directory;
mod directory_sequences;
mod examples;
mod hostile;
pub mod left_alone;
mod matching;
mod messages;
mod options;
mod reload;
mod repeated;
pub mod reserve;
mod schema;
mod shards;
pub mod soft_limits;

use std::path::{Path, PathBuf};

use engine::{Caller, Defaults, Descriptor, Entry, Plan, Request, RuleSet, ValueHashing};
use rules::{CalendarOptions, CalendarYears, LoadOptions, LoadedRules, Problems, RuleDirectory, load};

pub const REFERENCE: LoadOptions = LoadOptions {
    merge_domains: false,
    defaults: Defaults::ENVOY_RATELIMIT,
    hashing: ValueHashing::NONE,
    directory: RuleDirectory::YamlFiles,
    upgrades: Vec::new(),
    calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
    has_home: true,
};

/// Loads the one file `text`.
pub fn load_text(text: &str) -> Result<LoadedRules, Problems> {
    load_bytes(text.as_bytes(), REFERENCE)
}

pub fn load_bytes(bytes: &[u8], options: LoadOptions) -> Result<LoadedRules, Problems> {
    let directory = tempfile::tempdir().expect("a directory for rule files");
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, bytes).expect("a rule file");
    load(&[path], options)
}

pub fn rules(text: &str) -> RuleSet {
    load_text(text).unwrap_or_else(|problems| panic!("{problems}")).rules
}

/// A descriptor written as `key=value,key=value`.
pub fn descriptor(text: &str) -> Descriptor {
    let entries = text.split(',').filter(|entry| !entry.is_empty()).map(|entry| {
        let (key, value) = entry.split_once('=').expect("key=value");
        Entry { key: key.to_owned(), value: value.to_owned() }
    });
    Descriptor { entries: entries.collect(), ..Descriptor::default() }
}

pub fn request(domain: &str, descriptors: &[&str]) -> Request {
    Request {
        domain: domain.to_owned(),
        hits_addend: 1,
        descriptors: descriptors.iter().copied().map(descriptor).collect(),
        caller: Caller::default(),
    }
}

/// The store keys that a request charges, in order.
pub fn keys(rules: &RuleSet, request: &Request) -> Vec<String> {
    let plan = Plan::new(rules, request, 0).expect("a plan");
    plan.charges.keys().map(str::to_owned).collect()
}

/// The labels of the limits that apply to a request, in order.
pub fn labels(rules: &RuleSet, request: &Request) -> Vec<String> {
    let plan = Plan::new(rules, request, 0).expect("a plan");
    plan.limits().map(|limit| limit.label.to_string()).collect()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}
