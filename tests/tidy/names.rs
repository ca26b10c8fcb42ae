//! Names that a search finds once, and that say what they mean.

use std::collections::BTreeMap;

use crate::definitions::{Definition, Definitions};
use crate::source::{Source, production, report};

/// Verbs and prepositions that need the noun they are about.
const NEEDS_A_NOUN: [&str; 7] = ["ask", "note", "number", "of", "read", "spell", "words"];

/// The crate of a file, or its room where it belongs to the service: `crates/engine`, `src/grpc`.
fn room(found: &Definition) -> String {
    let parts = found.file.iter().take(2).map(|part| part.to_string_lossy());
    parts.collect::<Vec<_>>().join("/")
}

fn repeated_types(definitions: &Definitions) -> Vec<String> {
    let mut places: BTreeMap<(String, &str), Vec<String>> = BTreeMap::new();
    for found in &definitions.types {
        let place = format!("{}:{}", found.file.display(), found.line);
        places.entry((room(found), &found.name)).or_default().push(place);
    }
    places.retain(|_, places| places.len() > 1);
    places.into_iter().map(|((_, name), places)| format!("type {name}: {}", places.join(", "))).collect()
}

fn functions_without_a_noun(definitions: &Definitions) -> Vec<String> {
    let bare = definitions.functions.iter().filter(|found| NEEDS_A_NOUN.contains(&found.name.as_str()));
    bare.map(|found| format!("{}:{}: fn {}", found.file.display(), found.line, found.name)).collect()
}

/// What other crates use says what it is.
fn public_without_docs(definitions: &Definitions) -> Vec<String> {
    let all = definitions.types.iter().chain(&definitions.functions);
    let bare = all.filter(|found| found.is_public && !found.has_docs);
    let line =
        |found: &Definition| format!("{}:{}: {} has no docs", found.file.display(), found.line, found.name);
    bare.map(line).collect()
}

#[test]
fn no_type_name_is_used_twice_in_a_room() {
    report(&repeated_types(&Definitions::read(&production())));
}

#[test]
fn functions_say_what_they_are_about() {
    report(&functions_without_a_noun(&Definitions::read(&production())));
}

#[test]
fn the_engine_and_the_stores_document_what_others_use() {
    let sources: Vec<Source> =
        ["crates/engine/src", "crates/store/src"].into_iter().flat_map(crate::source::sources).collect();
    report(&public_without_docs(&Definitions::read(&sources)));
}

fn definitions(files: &[(&str, &str)]) -> Definitions {
    let source = |(path, text): &(&str, &str)| Source { path: path.into(), text: (*text).into() };
    Definitions::read(&files.iter().map(source).collect::<Vec<_>>())
}

#[test]
fn private_types_and_aliases_count() {
    let found = definitions(&[
        ("src/http/a.rs", "struct Node; mod inner { enum Slot {} }"),
        ("src/http/b/mod.rs", "type Node = u8; trait Slot {}"),
        ("src/http/c.rs", "#[cfg(test)] mod tests { struct Node; struct Once; }"),
        ("crates/engine/src/d.rs", "struct Once; struct Node;"),
        ("src/http/e.rs", "struct Once; impl T for Once { type Node = u8; }"),
    ]);
    let expected = [
        "type Node: src/http/a.rs:1, src/http/b/mod.rs:1",
        "type Slot: src/http/a.rs:1, src/http/b/mod.rs:1",
    ];
    assert_eq!(repeated_types(&found), expected);
}

#[test]
fn functions_of_traits_that_are_not_ours_are_left_alone() {
    let found = definitions(&[
        ("a.rs", "fn of() {}\nstruct A;\nimpl A { pub(super) async fn ask(&self) {} }"),
        ("b.rs", "trait T { fn note(&self); }\nfn read_line() {}"),
        (
            "c.rs",
            "impl std::io::Read for A { fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> { Ok(0) } }",
        ),
        ("d.rs", "#[cfg(test)] mod tests { fn ask() {} }"),
    ]);
    assert_eq!(functions_without_a_noun(&found), ["a.rs:1: fn of", "a.rs:3: fn ask", "b.rs:1: fn note"]);
}

#[test]
fn only_what_is_public_needs_docs() {
    let found = definitions(&[(
        "a.rs",
        "/// Counts.\npub struct A;\npub struct B;\nstruct C;\nimpl A {\n    pub fn d(&self) {}\n    fn e(&self) {}\n}",
    )]);
    assert_eq!(public_without_docs(&found), ["a.rs:3: B has no docs", "a.rs:6: d has no docs"]);
}
