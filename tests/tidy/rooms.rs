//! The rooms of the service, the folders of `src`: arrows from a room to the rooms that it uses form no circle.

use std::collections::BTreeMap;

use regex::Regex;

use crate::source::{Source, report, sources};

/// From one room to another, each with a line that uses it.
type Arrows = BTreeMap<(String, String), String>;

/// Tests may use any room: they are left out, with what is only there for them.
fn arrows(sources: &[Source]) -> Arrows {
    let used = Regex::new(r"\bcrate::(\w+|\{)").expect("a pattern");
    let mut arrows = Arrows::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let room = source.path.iter().nth(1).expect("a file in src").to_string_lossy().into_owned();
        let mut is_for_tests = false;
        for (line, text) in source.code() {
            for found in used.captures_iter(text).filter(|_| !is_for_tests) {
                let place = format!("{}:{line}", source.name());
                assert!(&found[1] != "{", "{place}: name each room in a `use` of its own");
                arrows.entry((room.clone(), found[1].to_owned())).or_insert(place);
            }
            is_for_tests = text.trim() == "#[cfg(test)]";
        }
    }
    arrows.retain(|(from, to), _| from != to);
    arrows
}

/// What is left when rooms that use no room, or that no room uses, are taken out one after the other.
fn circles(mut arrows: Arrows) -> Vec<String> {
    loop {
        let all: Vec<_> = arrows.keys().cloned().collect();
        arrows.retain(|(_, to), _| all.iter().any(|(user, _)| user == to));
        arrows.retain(|(from, _), _| all.iter().any(|(_, used)| used == from));
        if arrows.len() == all.len() {
            return arrows.iter().map(|((from, to), at)| format!("circle: {from} -> {to} ({at})")).collect();
        }
    }
}

#[test]
fn rooms_form_no_circle() {
    report(&circles(arrows(&sources("src"))));
}

#[test]
fn a_circle_is_found() {
    let source = |(path, text): (&str, &str)| Source { path: path.into(), text: text.into() };
    let open = [("src/a/x.rs", "crate::b::X;\n#[cfg(test)]\ncrate::d::Y;"), ("src/b/x.rs", "crate::c::f();")];
    let closed = [("src/c/x.rs", "use crate::a::Z;"), ("src/d/x.rs", "use crate::a::Z;")];
    let mut files: Vec<Source> = open.into_iter().map(source).collect();
    assert!(circles(arrows(&files)).is_empty());
    files.extend(closed.map(source));
    let expected = ["a -> b (src/a/x.rs:1)", "b -> c (src/b/x.rs:1)", "c -> a (src/c/x.rs:1)"];
    assert_eq!(circles(arrows(&files)), expected.map(|arrow| format!("circle: {arrow}")));
}
