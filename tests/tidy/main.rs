//! Rules for the code: names, sizes, words and forbidden calls. Cargo keeps the borders between the crates.

use source::{production, report, sources};

mod definitions;
mod homes;
mod layout;
mod names;
mod rooms;
mod sizes;
mod source;
mod words;

#[test]
fn every_module_says_what_it_is() {
    let undocumented =
        production().into_iter().filter(|source| !source.text.starts_with("//!") && !source.is_test());
    report(
        &undocumented.map(|source| format!("{}: no module documentation", source.name())).collect::<Vec<_>>(),
    );
}

#[test]
fn nothing_panics_or_hides_on_purpose() {
    let mut problems = Vec::new();
    // The end of each is added below, so that a search for them does not find this file.
    let banned = [".unwrap", "todo", "unimplemented", "panic", "#[allow", "dbg"].map(|start| match start {
        ".unwrap" => format!("{start}()"),
        "#[allow" => format!("{start}("),
        start => format!("{start}!("),
    });
    for source in production().into_iter().filter(|source| !source.is_test()) {
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
        // One module waits for other processes. This file contains the forbidden calls as text.
        let may_wait = ["support/wait.rs", "tidy/main.rs"];
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
