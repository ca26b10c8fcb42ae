//! All pages of the documentation: their links, and the files that they name.

use std::path::{Path, PathBuf};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Pages that stay short, with their longest length: depth goes to `docs/`.
const MAX_LINES: [(&str, usize); 2] = [("README.md", 110), ("CONTRIBUTING.md", 150)];

fn pages(folder: &Path, below: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() && below {
            found.extend(pages(&path, below));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// The pages in the root and below `docs/`, `deploy/` and `examples/`, with paths from the root, and their texts.
pub fn all_pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(ROOT);
    let below = ["docs", "deploy", "examples"].into_iter().flat_map(|folder| pages(&root.join(folder), true));
    let found = pages(root, false).into_iter().chain(below);
    let text = |page: &Path| std::fs::read_to_string(page).expect("a page is text");
    let relative = |page: &Path| page.strip_prefix(root).expect("a page of the project").to_owned();
    found.map(|page| (relative(&page), text(&page))).collect()
}

/// The text between `](` and `)`, without the anchor.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.split('#').next().unwrap_or_default())
}

#[test]
fn every_link_names_an_existing_file() {
    for (page, text) in all_pages() {
        let folder = Path::new(ROOT).join(page.parent().expect("a page is in a folder"));
        for target in links(&text).filter(|target| !target.contains("://") && !target.is_empty()) {
            assert!(folder.join(target).exists(), "{}: there is no {target}", page.display());
        }
    }
}

/// The names of source files between backticks: whole paths or their ends.
fn source_files(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_file = |name: &&str| [".rs", ".lua"].iter().any(|end| name.ends_with(end));
    quoted.filter(is_file).filter(|name| !name.contains([' ', '{', '*']))
}

pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn every_source_file_that_a_page_names_exists() {
    let folders = ["src", "crates", "tests", "benches"].map(|folder| Path::new(ROOT).join(folder));
    let files: Vec<_> = folders.iter().flat_map(|folder| files_below(folder)).collect();
    let mut problems = Vec::new();
    for (page, text) in all_pages() {
        let gone = source_files(&text).filter(|name| !files.iter().any(|file| file.ends_with(name)));
        problems.extend(gone.map(|name| format!("{}: there is no {name}", page.display())));
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn only_source_files_are_found_between_backticks() {
    let text = "`src/a.rs` and `rules.yaml`, `b/c.lua`, `make x.rs`, `{a,b}.rs`, d.rs";
    assert_eq!(source_files(text).collect::<Vec<_>>(), ["src/a.rs", "b/c.lua"]);
}

#[test]
fn the_first_pages_stay_short() {
    for (page, most) in MAX_LINES {
        let text = std::fs::read_to_string(Path::new(ROOT).join(page)).expect("a page");
        let lines = text.lines().count();
        assert!(lines <= most, "{page}: {lines} lines, more than {most}: depth goes to docs/");
    }
}
