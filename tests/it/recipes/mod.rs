//! The recipes of docs/recipes.md and docs/recipes-proxies.md: each rule file of `examples/recipes/` loads without a
//! warning, and answers the requests beside it, `requests/NAME.yaml`, as that file says, with the exceptions of
//! `exceptions/` that it names. Played in memory on a clock of its own; `redis::recipes` plays the same in Redis.

pub(crate) mod month;
mod play;
mod step;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ::simulate::replay::{MemoryReplay, ReplayStore};

/// The files of this kind in a folder of the recipes, without the ending.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    names.filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned)).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/recipes")
}

/// Plays every recipe. Each has counters of its own, because each has a domain of its own.
pub(crate) fn play_all(store: &mut impl ReplayStore) {
    let differences: Vec<String> =
        names(&folder()).iter().flat_map(|name| play::play(&folder(), name, store)).collect();
    assert!(differences.is_empty(), "\n{}\n", differences.join("\n"));
}

#[test]
fn every_recipe_answers_its_requests_in_memory() {
    play_all(&mut MemoryReplay::new());
}

#[test]
fn every_recipe_has_requests_and_a_section_of_the_page() {
    let page = |name: &str| fs::read_to_string(folder().join("../../docs").join(name)).expect("a page");
    let pages = [page("recipes.md"), page("recipes-proxies.md")].concat();
    let recipes = names(&folder());
    assert_eq!(recipes, names(&folder().join("requests")));
    for name in &recipes {
        let link = format!("(../examples/recipes/{name}.yaml)");
        assert!(pages.contains(&link), "no page of recipes has a section with {link}");
    }
    assert!(recipes.len() >= 16, "{recipes:?}");
}
