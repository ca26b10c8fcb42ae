//! Names that a search finds once, and that say what they mean.

use std::collections::BTreeMap;

use crate::code::{Code, Definition};
use crate::source::{Source, report, sources_below};

/// In each of these modules a type's name is used once, in all modules below it and with any visibility.
const MODULES: [&str; 8] =
    ["app", "engine", "rules", "settings", "simulate", "store", "telemetry", "transport"];

/// Verbs and prepositions that need the noun they are about.
const NEEDS_A_NOUN: [&str; 7] = ["ask", "note", "number", "of", "read", "spell", "words"];

fn repeated_types(code: &Code, module: &str) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Definition { name, file, line } in code.types.iter().filter(|found| found.file.starts_with(module)) {
        places.entry(name).or_default().push(format!("{}:{line}", file.display()));
    }
    places.retain(|_, places| places.len() > 1);
    places.into_iter().map(|(name, places)| format!("type {name}: {}", places.join(", "))).collect()
}

fn functions_without_a_noun(code: &Code) -> Vec<String> {
    let bare = code.functions.iter().filter(|found| NEEDS_A_NOUN.contains(&found.name.as_str()));
    bare.map(|found| format!("{}:{}: fn {}", found.file.display(), found.line, found.name)).collect()
}

#[test]
fn no_type_name_is_used_twice_in_a_module() {
    let code = Code::read(&sources_below("src"));
    report(&MODULES.iter().flat_map(|module| repeated_types(&code, module)).collect::<Vec<_>>());
}

#[test]
fn functions_say_what_they_are_about() {
    report(&functions_without_a_noun(&Code::read(&sources_below("src"))));
}

fn code(files: &[(&str, &str)]) -> Code {
    let source = |(path, text): &(&str, &str)| Source { path: path.into(), text: (*text).into() };
    Code::read(&files.iter().map(source).collect::<Vec<_>>())
}

#[test]
fn private_types_and_aliases_count() {
    let files = [
        ("store/a.rs", "struct Node; mod inner { enum Slot {} }"),
        ("store/b/mod.rs", "type Node = u8; trait Slot {}"),
        ("store/c.rs", "#[cfg(test)] mod tests { struct Node; struct Once; }"),
        ("engine/d.rs", "struct Once; struct Node;"),
        ("store/e.rs", "struct Once; impl Once { type Node = u8; }"),
    ];
    let code = code(&files);
    let expected = ["type Node: store/a.rs:1, store/b/mod.rs:1", "type Slot: store/a.rs:1, store/b/mod.rs:1"];
    assert_eq!(repeated_types(&code, "store"), expected);
    assert!(repeated_types(&code, "engine").is_empty());
}

#[test]
fn functions_of_traits_that_are_not_ours_are_left_alone() {
    let files = [
        ("a.rs", "fn of() {}\nstruct A;\nimpl A { pub(super) async fn ask(&self) {} }"),
        ("b.rs", "trait T { fn note(&self); }\nfn read_line() {}"),
        (
            "c.rs",
            "impl std::io::Read for A { fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> { Ok(0) } }",
        ),
        ("d.rs", "#[cfg(test)] mod tests { fn ask() {} }"),
    ];
    assert_eq!(
        functions_without_a_noun(&code(&files)),
        ["a.rs:1: fn of", "a.rs:3: fn ask", "b.rs:1: fn note"]
    );
}
