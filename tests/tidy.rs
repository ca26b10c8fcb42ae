//! What a reviewer would say twice: who may name whom, how large things may grow, what may not be written.

use std::fs;
use std::path::{Path, PathBuf};

/// A room, and the rooms of ours that its code may name. Tests beside the code may name what they like.
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

const LONGEST_FILE: usize = 400;
const LONGEST_FUNCTION: usize = 70;
const LONGEST_MAIN: usize = 40;

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The first folder or file below `src`.
    fn room(&self) -> String {
        let below = self.path.strip_prefix("src").expect("a source file");
        let first = below.components().next().expect("not src itself");
        Path::new(first.as_os_str()).with_extension("").display().to_string()
    }

    fn is_test(&self) -> bool {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let tests_of_the_engine = ["laws", "testing", "known_answers"];
        stem == "tests"
            || tests_of_the_engine.contains(&stem)
            || self.path.components().any(|part| part.as_os_str() == "tests")
    }

    /// The lines before the tests beside the code, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let until_tests = lines.take_while(|(_, line)| !line.starts_with("mod tests {"));
        until_tests.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                found.push(Source { path, text });
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}: run from the project's root");
    found
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// The rooms that a line names: `crate::room`.
fn rooms_named(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("crate::").filter_map(|(at, found)| {
        let rest = &line[at + found.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (end > 0).then_some(&rest[..end])
    })
}

#[test]
fn rooms_name_only_whom_they_may() {
    let mut problems = Vec::new();
    for source in sources("src") {
        let room = source.room();
        if room == "lib" || source.is_test() {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            problems.push(format!("{}: the room {room} has no arrows in tests/tidy.rs", source.name()));
            continue;
        };
        for (line, text) in source.code() {
            for named in rooms_named(text).filter(|named| !allowed.contains(named)) {
                problems.push(format!("{}:{line}: {room} may not name {named}", source.name()));
            }
        }
    }
    report(&problems);
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

#[test]
fn files_and_functions_stay_readable() {
    let mut problems = Vec::new();
    for source in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        let lines = source.text.lines().count();
        let most = if source.path == Path::new("src/main.rs") { LONGEST_MAIN } else { LONGEST_FILE };
        if lines > most {
            problems.push(format!("{}: {lines} lines, more than {most}", source.name()));
        }
        for (line, length) in long_functions(&source.text) {
            problems.push(format!(
                "{}:{line}: a function of {length} lines, more than {LONGEST_FUNCTION}",
                source.name()
            ));
        }
    }
    report(&problems);
}

/// Functions longer than the budget: from the line with `fn` to the closing brace at its indentation.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let is_function =
            ["fn ", "pub fn ", "async fn ", "pub async fn ", "pub(super) fn ", "pub(crate) fn "]
                .iter()
                .any(|start| trimmed.starts_with(start));
        if !is_function || trimmed.ends_with(';') {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - trimmed.len()]);
        if let Some(length) =
            lines[at..].iter().position(|line| *line == close).filter(|&length| length > LONGEST_FUNCTION)
        {
            long.push((at + 1, length));
        }
    }
    long
}

#[test]
fn every_module_says_what_it_is() {
    let undocumented =
        sources("src").into_iter().filter(|source| !source.text.starts_with("//!") && !source.is_test());
    report(
        &undocumented.map(|source| format!("{}: no module documentation", source.name())).collect::<Vec<_>>(),
    );
}

#[test]
fn nothing_panics_or_hides_on_purpose() {
    let mut problems = Vec::new();
    // Spelt in two parts, so that this file does not find itself.
    let banned = [".unwrap", "todo", "unimplemented", "panic", "#[allow", "dbg"].map(|start| match start {
        ".unwrap" => format!("{start}()"),
        "#[allow" => format!("{start}("),
        start => format!("{start}!("),
    });
    for source in sources("src").into_iter().filter(|source| !source.is_test()) {
        for (line, text) in source.code() {
            for found in banned.iter().filter(|banned| text.contains(banned.as_str())) {
                problems.push(format!("{}:{line}: {found}", source.name()));
            }
        }
    }
    report(&problems);
}

#[test]
fn tests_do_not_sleep_to_let_time_pass() {
    let mut problems = Vec::new();
    for source in sources("tests") {
        // Waiting for another process to become ready has one home, and the proxy delays bytes because that is its work.
        let may_wait = ["wait.rs", "daemon.rs", "proxy", "tidy.rs"];
        if may_wait.iter().any(|name| source.name().contains(name)) {
            continue;
        }
        for (line, text) in source.code() {
            if text.contains("thread::sleep") || text.contains("time::sleep(") {
                problems.push(format!("{}:{line}: sleeps", source.name()));
            }
        }
    }
    report(&problems);
}

#[test]
fn lua_files_say_what_they_read_and_return() {
    let folder = Path::new("src/store/redis/script/lua");
    let mut problems = Vec::new();
    for entry in fs::read_dir(folder).expect("the scripts") {
        let path = entry.expect("a readable entry").path();
        let text = fs::read_to_string(&path).expect("UTF-8");
        if !text.starts_with("--") {
            problems.push(format!("{}: no header", path.display()));
        }
    }
    report(&problems);
}
