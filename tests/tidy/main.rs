//! Code rules that no lint covers: file sizes, where files and methods belong, circular dependencies, and tests that
//! sleep. Cargo enforces the dependencies between crates.

use source::{production, report, sources};

mod circles;
mod homes;
mod layout;
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
