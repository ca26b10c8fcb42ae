//! Random stories on the memory store: the relations, and the answers of the model.

use std::collections::BTreeSet;
use std::collections::HashSet;

use ratelimitd_stories::explain::difference;
use ratelimitd_stories::generate::story;
use ratelimitd_stories::model::answers;
use ratelimitd_stories::play::{KINDS, Played, Unplayable, play};
use ratelimitd_stories::relations::{Broken, Checked, Relation};
use ratelimitd_stories::run::{budget, check_known, check_stories};
use ratelimitd_stories::story::{Step, Story, text_of};
use serde_json::Value;
use simulate::replay::MemoryReplay;

fn on_memory(story: &Story) -> Result<Vec<Played>, Unplayable> {
    play(story, &mut MemoryReplay::new())
}

fn keeps(relation: Relation) -> impl FnMut(&Story) -> Checked {
    move |story| relation.check(story, &mut on_memory)
}

fn check(relation: Relation) {
    let checked = check_stories(budget(120), &mut keeps(relation))
        .unwrap_or_else(|failure| panic!("{relation:?}: {failure}"));
    assert!(checked > 0, "no story had something to change");
}

#[test]
fn split_takes() {
    check(Relation::SplitTakes);
}

#[test]
fn settles_alone() {
    check(Relation::SettlesAlone);
}

#[test]
fn neutral_edits() {
    check(Relation::NeutralEdit);
}

#[test]
fn returned_estimates() {
    check(Relation::ReturnedEstimate);
}

#[test]
fn bounded_reserves() {
    check(Relation::BoundedReserve);
}

#[test]
fn two_clocks() {
    check(Relation::TwoClocks);
}

#[test]
fn frame() {
    check(Relation::Frame);
}

#[test]
fn permutation() {
    check(Relation::Permutation);
}

/// Whether memory gives the answers of the model.
fn as_the_model(story: &Story) -> Checked {
    let played = on_memory(story)?;
    for (expected, played) in answers(story).iter().zip(&played) {
        if *expected != played.answer {
            return Err(Broken::Differs(format!("model and engine\n  {expected:?}\n  {:?}", played.answer)));
        }
    }
    Ok(true)
}

#[test]
fn memory_answers_as_the_model() {
    check_stories(budget(300), &mut as_the_model).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Whether what `explain` says applies is what is charged.
fn as_explained(story: &Story) -> Checked {
    let played = on_memory(story)?;
    match played.iter().find_map(difference) {
        Some(difference) => Err(Broken::Differs(difference)),
        None => Ok(!played.is_empty()),
    }
}

#[test]
fn what_explain_says_applies_is_what_is_charged() {
    check_stories(budget(120), &mut as_explained).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn known_stories() {
    let mut failures = Vec::new();
    for entry in std::fs::read_dir("known").expect("the folder of known stories") {
        let path = entry.expect("a file").path();
        let lines = std::fs::read_to_string(&path).expect("text");
        let mut add = |what: &str, failed: Vec<String>| {
            failures
                .extend(failed.into_iter().map(|failure| format!("{}, {what}, {failure}", path.display())));
        };
        add("model", check_known(&lines, &mut as_the_model));
        add("explain", check_known(&lines, &mut as_explained));
        for relation in Relation::ALL {
            add(&format!("{relation:?}"), check_known(&lines, &mut keeps(relation)));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// The keys of each kind of map in rule files.
fn keys(schema: &Value) -> BTreeSet<String> {
    let of = |section: &str, value: &Value| -> Vec<String> {
        let names = value["properties"].as_object().expect("properties").keys();
        names.map(|name| format!("{section}.{name}")).collect()
    };
    let definitions = schema["definitions"].as_object().expect("definitions");
    definitions.iter().flat_map(|(name, value)| of(name, value)).chain(of("file", schema)).collect()
}

fn collect_keys(section: &str, value: &Value, found: &mut BTreeSet<String>) {
    let Some(members) = value.as_object() else { return };
    for (name, member) in members {
        found.insert(format!("{section}.{name}"));
        let below = match name.as_str() {
            "descriptors" => "descriptor",
            "rate_limit" | "rate_limits" => "rate_limit",
            "replaces" => "replaces",
            "tiers" => "tier",
            _ => continue,
        };
        match member {
            Value::Array(elements) => elements.iter().for_each(|element| collect_keys(below, element, found)),
            Value::Object(tiers) if below == "tier" => {
                tiers.values().for_each(|tier| collect_keys(below, tier, found))
            }
            _ => collect_keys(below, member, found),
        }
    }
}

#[test]
fn a_thousand_stories_have_every_key_and_every_kernel() {
    let (mut found, mut kinds, mut values) = (BTreeSet::new(), HashSet::new(), HashSet::new());
    let mut problems = Vec::new();
    for story in (0..1_000).map(story) {
        let changed = story
            .steps
            .iter()
            .filter_map(|step| if let Step::Rules(files) = step { Some(files) } else { None });
        for file in changed.chain([&story.rules]).flatten() {
            let file: Value = serde_json::from_str(&text_of(file)).expect("JSON");
            collect_keys("file", &file, &mut found);
        }
        let played = match on_memory(&story) {
            Ok(played) => played,
            Err(Unplayable(reason)) => {
                problems.push(format!("story {}: {reason}", story.seed));
                continue;
            }
        };
        kinds.extend(played.iter().flat_map(|played| &played.facts).map(|fact| fact.kind));
        values.extend(played.iter().map(|played| (played.answer.is_over, played.answer.has_receipt)));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // These change no decision of a store.
    let of_tasks = [
        "penalty",
        "feedback",
        "ledger",
        "lease",
        "notify",
        "unit_name",
        "rate_limit.count",
        "rate_limit.scope",
    ];
    let is_of_task = |key: &&String| of_tasks.iter().any(|name| key.contains(name));
    let keys = keys(&rules::schema());
    let missing: Vec<_> = keys.difference(&found).filter(|key| !is_of_task(key)).collect();
    assert_eq!(missing, Vec::<&String>::new());
    assert_eq!(kinds, HashSet::from(KINDS));
    assert_eq!(values.len(), 3, "denied, admitted, and admitted with a receipt");
}
