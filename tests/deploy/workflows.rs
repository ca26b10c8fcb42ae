//! The workflows in `.github/`: their syntax, expressions and permissions, which no other test runs.

use crate::tools::{built, in_project, run};

#[test]
fn actionlint_accepts_every_workflow() {
    let entries = std::fs::read_dir(in_project(".github/workflows")).expect("a folder");
    let files: Vec<_> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    assert!(files.len() >= 3, "{files:?}");
    // The shell scripts in them are not checked: whether shellcheck is there depends on the machine.
    let mut arguments = vec!["-shellcheck="];
    arguments.extend(files.iter().map(|file| file.to_str().expect("UTF-8")));
    run(built("actionlint"), &arguments);
}
