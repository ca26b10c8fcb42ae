//! Allowed imports: which top-level module of `src` may use which, and what the engine must not use.

use std::collections::BTreeSet;
use std::path::Path;

use crate::code::Code;
use crate::source::{Source, report, sources, sources_below};

/// A top-level module, and the modules of this crate that its code may use. Unit tests may use every module.
const ALLOWED_IMPORTS: [(&str, &[&str]); 19] = [
    ("engine", &["engine"]),
    ("certificates", &["certificates"]),
    ("clock", &[]),
    ("markup", &[]),
    ("protobuf", &[]),
    ("yaml", &["yaml"]),
    ("store", &["store", "certificates", "engine", "clock"]),
    ("rules", &["rules", "engine", "yaml"]),
    ("telemetry", &["telemetry", "certificates", "engine", "store", "clock"]),
    ("xds", &["xds", "certificates", "clock", "engine", "protobuf", "rules", "telemetry"]),
    ("settings", &["settings", "engine", "rules", "store", "telemetry", "transport", "xds", "yaml"]),
    ("limiter", &["engine", "telemetry"]),
    ("counters", &["engine", "limiter"]),
    ("transport", &["transport", "certificates", "engine", "counters", "limiter", "protobuf", "telemetry"]),
    ("replay", &["replay", "engine", "store", "transport", "clock"]),
    ("simulate", &["simulate", "engine", "markup", "replay", "yaml"]),
    (
        "cli",
        &["cli", "app", "certificates", "engine", "replay", "rules", "settings", "simulate", "transport"],
    ),
    (
        "app",
        &[
            "app",
            "certificates",
            "clock",
            "engine",
            "counters",
            "limiter",
            "rules",
            "settings",
            "store",
            "telemetry",
            "transport",
            "xds",
        ],
    ),
    ("main", &["cli"]),
];

/// Crates that the pure engine may use: data structures, a text search and a hash, nothing that acts.
const ENGINE_CRATES: [&str; 8] =
    ["std", "core", "thiserror", "aho_corasick", "hashbrown", "hmac", "smallvec", "sha2"];

/// The first folder or file below `src`.
fn top_module(path: &Path) -> String {
    let first = path.components().next().expect("not src itself");
    Path::new(first.as_os_str()).with_extension("").display().to_string()
}

/// Where a file uses a module that its own module may not use.
fn forbidden(code: &Code) -> Vec<String> {
    let mut problems = Vec::new();
    for reference in code.references.iter().filter(|reference| reference.file != Path::new("lib.rs")) {
        let (file, module) = (reference.file.display(), top_module(&reference.file));
        let Some((_, allowed)) = ALLOWED_IMPORTS.iter().find(|(name, _)| *name == module) else {
            problems.push(format!("{file}: the module {module} has no row in tests/tidy/modules.rs"));
            continue;
        };
        let Some(path) = code.absolute(&reference.module, &reference.path) else { continue };
        if let Some(named) =
            path.first().filter(|named| **named != module && !allowed.contains(&named.as_str()))
        {
            problems.push(format!("{file}:{}: {module} may not use {named}", reference.line));
        }
    }
    problems.dedup();
    problems
}

#[test]
fn modules_use_only_the_modules_that_the_table_allows() {
    let mut problems = forbidden(&Code::read(&sources_below("src")));
    let main =
        Source { path: "main.rs".into(), text: std::fs::read_to_string("src/main.rs").expect("UTF-8") };
    problems.extend(forbidden(&Code::read(&[as_library(main)])));
    report(&problems);
}

/// Permissions of the table that no code uses.
fn unused_permissions(code: &Code) -> Vec<String> {
    let used: BTreeSet<(String, String)> = code
        .references
        .iter()
        .filter_map(|reference| {
            let path = code.absolute(&reference.module, &reference.path)?;
            Some((top_module(&reference.file), path.first()?.clone()))
        })
        .collect();
    let permissions =
        ALLOWED_IMPORTS.iter().flat_map(|(module, allowed)| allowed.iter().map(move |named| (module, named)));
    permissions
        .filter(|(module, named)| !used.contains(&((**module).to_owned(), (**named).to_owned())))
        .map(|(module, named)| format!("no code of {module} uses {named}: remove the permission"))
        .collect()
}

#[test]
fn every_permission_is_used() {
    let main = std::fs::read_to_string("src/main.rs").expect("UTF-8");
    let main = Code::read(&[as_library(Source { path: "main.rs".into(), text: main })]);
    let in_main = unused_permissions(&main);
    let problems = unused_permissions(&Code::read(&sources_below("src")));
    report(&problems.into_iter().filter(|problem| in_main.contains(problem)).collect::<Vec<_>>());
}

/// The binary names this crate as any other crate does.
fn as_library(main: Source) -> Source {
    Source { text: main.text.replace("ratelimitd::", "crate::"), ..main }
}

#[test]
fn a_module_is_found_in_every_spelling_of_its_path() {
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
        assert_eq!(problems(text), ["engine/limit.rs:1: engine may not use store"], "{text}");
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
    assert_eq!(main("fn main() { ratelimitd::app::run() }"), ["main.rs:1: main may not use app"]);
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
