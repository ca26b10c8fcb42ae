//! The text of rule files; a form feed separates the files.
//!
//! Holds: the same files give the same rules or the same problems; a problem has a reason; rules that load compile
//! again from their specs, and every rule of them can be planned and decided.

use std::path::PathBuf;

use engine::{
    Caller, Defaults, Descriptor, DomainSpec, Entry, HashKey, NodeSpec, Plan, Request, RuleSet, ValueHashing,
};
use rules::{
    AppliedUpgrades, CalendarOptions, CalendarYears, LoadOptions, LoadedRules, RuleDirectory, describe, load,
    rlconfig,
};
use simulate::replay::{MemoryReplay, ReplayStore};

/// Files of one input.
const MAX_FILES: usize = 3;
const NOW_US: u64 = 1_700_000_040_000_000;

/// Loads the files in `data`.
pub fn run(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut paths = Vec::new();
    for (number, text) in data.splitn(MAX_FILES, |&byte| byte == b'\x0c').enumerate() {
        let path = folder.path().join(format!("{number}.yaml"));
        std::fs::write(&path, text).expect("a rule file");
        paths.push(path);
    }
    for merge_domains in [false, true] {
        let hashing = ValueHashing { key: Some(HashKey::new(b"fuzz")), all_values: merge_domains };
        let (defaults, directory) = (Defaults::ENVOY_RATELIMIT, RuleDirectory::YamlFiles);
        let calendars = CalendarOptions::new(CalendarYears { first: 2020, last: 2031 });
        let upgrades = Vec::new();
        check(
            &paths,
            LoadOptions { merge_domains, defaults, hashing, directory, upgrades, calendars, has_home: true },
        );
    }
}

fn check(paths: &[PathBuf], options: LoadOptions) {
    match (load(paths, options.clone()), load(paths, options.clone())) {
        (Ok(loaded), Ok(again)) => {
            assert_eq!((&loaded.specs, rlconfig(&loaded.rules)), (&again.specs, rlconfig(&again.rules)));
            check_rules(&loaded, options);
        }
        (Err(problems), Err(again)) => {
            let text = problems.to_string();
            assert_eq!(text, again.to_string());
            assert!(text.contains(".yaml"), "no file is named: {text}");
        }
        (Ok(_), Err(problems)) | (Err(problems), Ok(_)) => panic!("only one of two loads failed: {problems}"),
    }
}

fn check_rules(loaded: &LoadedRules, options: LoadOptions) {
    let again =
        RuleSet::compile(&loaded.specs, options.defaults, options.hashing).expect("they compiled before");
    assert_eq!(rlconfig(&loaded.rules), rlconfig(&again));
    let mut store = MemoryReplay::new();
    for domain in &loaded.specs {
        for node in &domain.descriptors {
            check_node(&loaded.rules, &mut store, domain, node, &[]);
        }
    }
}

/// Plans and decides a request for each rule at `node` and below it, whose parents match `above`.
fn check_node(
    rules: &RuleSet,
    store: &mut MemoryReplay,
    domain: &DomainSpec,
    node: &NodeSpec,
    above: &[Entry],
) {
    let value = if node.value.is_empty() { "x".to_owned() } else { node.value.clone() };
    let entries = [above, &[Entry { key: node.key.clone(), value }]].concat();
    let descriptor = Descriptor { entries: entries.clone(), ..Descriptor::default() };
    let request = Request {
        domain: domain.domain.clone(),
        hits_addend: 1,
        descriptors: vec![descriptor],
        caller: Caller::default(),
    };
    let plan = Plan::new(rules, &request, 0).expect("a rule without an override");
    let outcomes = store.decide(&[(NOW_US, &plan.charges)]).expect("memory decides");
    assert_eq!(outcomes[0].by_charge.len(), plan.charges.len());
    describe(rules, &AppliedUpgrades::default(), &request, NOW_US)
        .expect("what can be planned can be described");
    for child in &node.descriptors {
        check_node(rules, store, domain, child, &entries);
    }
}
