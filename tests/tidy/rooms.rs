//! Who may name whom: the table of the rooms of `src`, and what the engine must not touch.

use std::path::Path;

use crate::code::Code;
use crate::source::{Source, report, sources, sources_below};

/// A room, and the rooms of this crate that its code may name. Tests beside the code may name every room.
const ARROWS: [(&str, &[&str]); 14] = [
    ("engine", &["engine"]),
    ("clock", &[]),
    ("yaml", &["yaml"]),
    ("store", &["store", "engine", "clock"]),
    ("rules", &["rules", "engine", "clock", "yaml"]),
    ("telemetry", &["telemetry", "engine", "store", "clock"]),
    ("settings", &["settings", "engine", "store", "telemetry", "transport", "yaml"]),
    ("limiter", &["engine", "telemetry", "clock"]),
    ("counters", &["engine", "limiter"]),
    ("transport", &["transport", "engine", "counters", "limiter", "telemetry", "clock"]),
    ("replay", &["replay", "engine", "store", "transport", "clock"]),
    ("cli", &["cli", "app", "engine", "replay", "rules", "settings", "store", "transport", "clock"]),
    (
        "app",
        &[
            "app",
            "clock",
            "engine",
            "counters",
            "limiter",
            "rules",
            "settings",
            "store",
            "telemetry",
            "transport",
        ],
    ),
    ("main", &["cli"]),
];

/// Crates that the pure engine may use: data structures and a hash, nothing that acts.
const ENGINE_CRATES: [&str; 6] = ["std", "core", "thiserror", "hashbrown", "smallvec", "sha2"];

/// The first folder or file below `src`.
fn room(path: &Path) -> String {
    let first = path.components().next().expect("not src itself");
    Path::new(first.as_os_str()).with_extension("").display().to_string()
}

/// Where a file names a room that its own room may not name.
fn forbidden(code: &Code) -> Vec<String> {
    let mut problems = Vec::new();
    for reference in code.references.iter().filter(|reference| reference.file != Path::new("lib.rs")) {
        let (file, room) = (reference.file.display(), room(&reference.file));
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            problems.push(format!("{file}: the room {room} has no arrows in tests/tidy/rooms.rs"));
            continue;
        };
        let Some(path) = code.absolute(&reference.module, &reference.path) else { continue };
        if let Some(named) =
            path.first().filter(|named| **named != room && !allowed.contains(&named.as_str()))
        {
            problems.push(format!("{file}:{}: {room} may not name {named}", reference.line));
        }
    }
    problems.dedup();
    problems
}

#[test]
fn rooms_name_only_the_rooms_they_may() {
    let mut problems = forbidden(&Code::read(&sources_below("src")));
    let main =
        Source { path: "main.rs".into(), text: std::fs::read_to_string("src/main.rs").expect("UTF-8") };
    problems.extend(forbidden(&Code::read(&[as_library(main)])));
    report(&problems);
}

/// The binary names this crate as any other crate does.
fn as_library(main: Source) -> Source {
    Source { text: main.text.replace("ratelimitd::", "crate::"), ..main }
}

#[test]
fn a_room_is_seen_however_it_is_named() {
    let problems = |text: &str| {
        let source = |path: &str, text: &str| Source { path: path.into(), text: text.to_owned() };
        let library = source("lib.rs", "pub mod clock; pub mod engine; pub mod store;");
        forbidden(&Code::read(&[
            library,
            source("clock.rs", ""),
            source("store/mod.rs", ""),
            source("engine/mod.rs", "mod limit;"),
            source("engine/limit.rs", text),
        ]))
    };
    for text in [
        "use crate::store::Memory;",
        "use crate::{engine::Cost, store::{self, Memory}};",
        "use crate::{\n    engine::Cost,\n    store::Memory,\n};",
        "use crate::store as counters;",
        "use super::super::store::Memory;",
        "fn f(x: crate::store::Memory) {}",
        "fn f() { log!(\"{}\", crate::store::COUNT) }",
        "pub use crate::store::Memory;",
    ] {
        let line = 1 + text.find("\n    store").map_or(0, |_| 0);
        assert_eq!(problems(text), [format!("engine/limit.rs:{line}: engine may not name store")], "{text}");
    }
    for text in [
        "use crate::engine::Cost;",
        "use super::Cost;",
        "use std::{clock, store::X};",
        "use store::X;",
        "fn f() { let store = 1; x.store() }",
        "/// As [`crate::store`] has it.\nstruct A;",
        "#[cfg(test)]\nmod tests { use crate::store::Memory; }",
    ] {
        assert_eq!(problems(text), [""; 0], "{text}");
    }
    let main = |text: &str| {
        forbidden(&Code::read(&[as_library(Source { path: "main.rs".into(), text: text.into() })]))
    };
    assert_eq!(main("use ratelimitd::cli; fn main() { cli::run() }"), [""; 0]);
    assert_eq!(main("fn main() { ratelimitd::app::run() }"), ["main.rs:1: main may not name app"]);
}

#[test]
fn the_engine_acts_on_nothing() {
    let mut problems = Vec::new();
    let acting =
        ["std::io", "std::net", "std::fs", "std::env", "std::thread", "std::time::Instant", "SystemTime"];
    for source in sources("src/engine").into_iter().filter(|source| !source.is_test()) {
        for (line, text) in source.code() {
            let foreign = text.trim_start().strip_prefix("use ").and_then(|used| used.split("::").next());
            let ours = ["crate", "super", "self", "proptest"];
            if let Some(name) = foreign.filter(|name| !ours.contains(name) && !ENGINE_CRATES.contains(name)) {
                problems.push(format!("{}:{line}: the engine may not use {name}", source.name()));
            }
            for banned in acting.iter().filter(|banned| text.contains(**banned)) {
                problems.push(format!("{}:{line}: the engine may not use {banned}", source.name()));
            }
            if text.contains(".await") || text.contains("async move") {
                problems.push(format!("{}:{line}: the engine awaits nothing", source.name()));
            }
        }
    }
    report(&problems);
}
