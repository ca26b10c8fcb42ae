//! Where files stand.

use std::path::{Path, PathBuf};

use crate::source::{everything, report};

/// Modules with children that are not in a `mod.rs`.
fn beside_their_folders(files: &[PathBuf]) -> Vec<&PathBuf> {
    let has_children = |file: &&PathBuf| {
        let folder = file.with_extension("");
        files.iter().any(|other| other.starts_with(&folder))
    };
    files.iter().filter(has_children).collect()
}

#[test]
fn a_module_with_children_is_a_folder_with_a_mod_rs() {
    let files: Vec<_> = everything().into_iter().map(|source| source.path).collect();
    let advice = |file: &PathBuf| format!("{}: belongs in a mod.rs in its folder", file.display());
    report(&beside_their_folders(&files).into_iter().map(advice).collect::<Vec<_>>());
}

#[test]
fn a_module_beside_its_folder_is_found() {
    let files = ["a.rs", "a/b.rs", "c/mod.rs", "c/d.rs", "ab.rs", "e.rs"].map(PathBuf::from);
    assert_eq!(beside_their_folders(&files), [Path::new("a.rs")]);
}

/// The source of a file of saved cases, as proptest looks for it: beside `src`, or beside `tests` for tests/it.
fn source_of_saved_cases(file: &Path) -> PathBuf {
    let parts: Vec<_> = file.iter().collect();
    let at = parts.iter().position(|part| *part == "proptest-regressions").expect("a file of saved cases");
    let package: PathBuf = parts[..at].iter().collect();
    let below: PathBuf = parts[at + 1..].iter().collect();
    let folder = if below.starts_with("it") { "tests" } else { "src" };
    package.join(folder).join(below).with_extension("rs")
}

#[test]
fn saved_cases_of_properties_are_read() {
    let crates = std::fs::read_dir("crates").expect("the crates");
    let crates = crates.map(|entry| entry.expect("a readable entry").path().join("proptest-regressions"));
    let mut folders: Vec<PathBuf> = crates.filter(|folder| folder.exists()).collect();
    folders.push(PathBuf::from("proptest-regressions"));
    let mut problems = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !source_of_saved_cases(&path).exists() {
                let source = source_of_saved_cases(&path);
                problems.push(format!("{}: there is no {}", path.display(), source.display()));
            }
        }
    }
    report(&problems);
    assert!(
        !Path::new("tests/proptest-regressions").exists(),
        "use support::properties: saved cases have one place"
    );
}
