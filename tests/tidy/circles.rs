//! Keeps dependencies free of circles: between the folders of `src`, and between the files of the engine. The engine's
//! folders also have one direction.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;

use crate::source::{Source, report, sources};

/// From one folder or file to another, each with a line that uses it.
type Arrows = BTreeMap<(String, String), String>;

/// Leaves out tests and items for tests only, which may use any folder.
fn arrows(sources: &[Source]) -> Arrows {
    let used = Regex::new(r"\bcrate::(\w+|\{)").expect("a pattern");
    let mut arrows = Arrows::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let folder = source.path.iter().nth(1).expect("a file in src").to_string_lossy().into_owned();
        let mut is_for_tests = false;
        for (line, text) in source.code() {
            for found in used.captures_iter(text).filter(|_| !is_for_tests) {
                let place = format!("{}:{line}", source.name());
                assert!(&found[1] != "{", "{place}: name each folder in a `use` of its own");
                arrows.entry((folder.clone(), found[1].to_owned())).or_insert(place);
            }
            is_for_tests = text.trim() == "#[cfg(test)]";
        }
    }
    arrows.retain(|(from, to), _| from != to);
    arrows
}

/// Removes folders or files without arrows to or from others, one after the other, and returns what is left.
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
fn the_folders_of_the_service_form_no_circle() {
    report(&circles(arrows(&sources("src"))));
}

/// Each folder of the engine uses only those before it.
const ENGINE: [&str; 3] = ["limit", "rules", "request"];

/// Lines of the engine that use a folder above their own.
fn upward(sources: &[Source]) -> Vec<String> {
    let used = Regex::new(r"\bcrate::(\w+)").expect("a pattern");
    let floor = |name: &str| ENGINE.iter().position(|folder| *folder == name);
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let Some(own) = source.path.iter().nth(3).and_then(|folder| floor(&folder.to_string_lossy())) else {
            continue;
        };
        for (line, text) in source.code() {
            if used.captures_iter(text).any(|found| floor(&found[1]).is_some_and(|used| used > own)) {
                problems.push(format!("{}:{line}: uses a folder above its own", source.name()));
            }
        }
    }
    problems
}

#[test]
fn the_folders_of_the_engine_have_one_direction() {
    report(&upward(&sources("crates/engine/src")));
    let source = |(path, text): (&str, &str)| Source { path: path.into(), text: text.into() };
    let files = [
        ("crates/engine/src/limit/x.rs", "use crate::limit::Y;\n// crate::rules\nuse crate::request::Z;"),
        ("crates/engine/src/request/x.rs", "use crate::rules::Y;"),
        ("crates/engine/src/lib.rs", "pub use crate::request::Y;"),
    ];
    let expected = ["crates/engine/src/limit/x.rs:3: uses a folder above its own"];
    assert_eq!(upward(&files.map(source)), expected);
}

/// The path of a file's module in its crate; empty for `lib.rs`.
fn module_of(file: &Path) -> Vec<String> {
    let names = file.iter().skip_while(|part| *part != "src").skip(1);
    let names = names.map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned());
    names.filter(|name| name != "mod" && name != "lib").collect()
}

/// From one file of a crate to another: by paths from `crate`, `self` or `super`, and by the paths of `use`.
fn file_arrows(sources: &[Source]) -> Arrows {
    let used = Regex::new(r"\buse (\w+(?:::\w+)*)|\b((?:crate|self|super)(?:::\w+)*)").expect("a pattern");
    let visibility = Regex::new(r"\bpub\([^)]*\)").expect("a pattern");
    let files: Vec<_> = sources.iter().filter(|source| !source.is_test()).collect();
    let modules: BTreeMap<Vec<String>, String> =
        files.iter().map(|source| (module_of(&source.path), source.name())).collect();
    let mut arrows = Arrows::new();
    for source in files {
        let own = module_of(&source.path);
        for (line, text) in source.code() {
            for found in used.captures_iter(&visibility.replace_all(text, "")) {
                let path = found.get(1).or(found.get(2)).map_or("", |path| path.as_str());
                if let Some(file) = file_of(path, &own, &modules).filter(|file| **file != source.name()) {
                    let place = format!("{}:{line}", source.name());
                    arrows.entry((source.name(), file.clone())).or_insert(place);
                }
            }
        }
    }
    arrows
}

/// Returns the file that a path in the module `own` refers to. A part of the path that is not a module names an item.
fn file_of<'m>(path: &str, own: &[String], modules: &'m BTreeMap<Vec<String>, String>) -> Option<&'m String> {
    let mut module = own.to_vec();
    for name in path.split("::") {
        match name {
            "crate" => module.clear(),
            "self" => {}
            "super" => drop(module.pop()),
            name => module.push(name.to_owned()),
        }
    }
    while !modules.contains_key(&module) && !module.is_empty() {
        module.pop();
    }
    modules.get(&module)
}

#[test]
fn the_files_of_the_engine_form_no_circle() {
    report(&circles(file_arrows(&sources("crates/engine/src"))));
    let source = |(path, text): (&str, &str)| Source { path: path.into(), text: text.into() };
    let mut files: Vec<Source> = [
        ("crates/a/src/lib.rs", "pub use x::X;\npub use x::y::Y;"),
        ("crates/a/src/x/mod.rs", "use self::y::Y;\nuse std::fmt;"),
        ("crates/a/src/x/y.rs", "use super::z::{Z, W};\npub(super) struct Y;"),
    ]
    .map(source)
    .into();
    files.push(source(("crates/a/src/x/z.rs", "use super::super::V;")));
    let names = |name: &str| format!("crates/a/src/{name}");
    let found = circles(file_arrows(&files));
    assert!(
        found.iter().any(|problem| problem.contains(&names("x/z.rs")) && problem.contains(&names("lib.rs"))),
        "{found:?}"
    );
    files[3].text = "pub struct Z;".to_owned();
    assert_eq!(circles(file_arrows(&files)), Vec::<String>::new());
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
