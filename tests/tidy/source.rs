//! Source files and the parts of them that the rules are about.

use std::fs;
use std::path::PathBuf;

pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

impl Source {
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub fn is_test(&self) -> bool {
        self.path.file_stem().is_some_and(|stem| stem == "tests" || stem == "testing")
            || self.path.components().any(|part| part.as_os_str() == "tests")
    }

    /// The lines before the tests beside the code, without comments.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let until_tests = lines.take_while(|(_, line)| !line.starts_with("mod tests {"));
        until_tests.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// All Rust files in a folder and its folders, with paths from the project's root.
pub fn sources(folder: &str) -> Vec<Source> {
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
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The folders of production code and of the unit tests beside it: of the service, then of each crate.
fn production_folders() -> Vec<String> {
    let crates = fs::read_dir("crates").expect("the crates: run from the project's root");
    let crates = crates.map(|entry| format!("{}/src", entry.expect("a readable entry").path().display()));
    let mut folders: Vec<String> = ["src".to_owned()].into_iter().chain(crates).collect();
    folders.sort();
    folders
}

/// The code of the service and of its crates.
pub fn production() -> Vec<Source> {
    production_folders().iter().flat_map(|folder| sources(folder)).collect()
}

/// All Rust code of the project: production code, tests and benchmarks.
pub fn everything() -> Vec<Source> {
    let others = ["tests", "benches", "fuzz/src"].into_iter().flat_map(sources);
    production().into_iter().chain(others).collect()
}

/// Fails with one line for each problem.
#[track_caller]
pub fn report(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
