//! The sections of pages: every link to a section finds it.

use std::fs;
use std::path::{Path, PathBuf};

use super::pages::{ROOT, all_pages, files_below};

/// A heading: the number of its `#` and its text.
fn headings(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !is_code && level > 0 && title.starts_with(' ') {
            found.push((level, title.trim()));
        }
    }
    found
}

/// The anchor that GitHub gives a heading: letters in lower case, digits, `_` and `-`, and a `-` for each space.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "_- ".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn has_section(page: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(page).expect("a page is text");
    headings(&text).iter().any(|(_, heading)| anchor(heading) == wanted)
}

/// The targets of the links in a page that name a section: a file, empty for the page itself, and an anchor.
fn links_to_sections(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.filter(|(target, _)| !target.contains("://")).filter_map(|(target, _)| target.split_once('#'))
}

#[test]
fn every_link_to_a_section_finds_it() {
    let mut problems = Vec::new();
    for (page, text) in all_pages() {
        let own = Path::new(ROOT).join(&page);
        let folder = own.parent().expect("a page is in a folder");
        for (file, wanted) in links_to_sections(&text) {
            let target = if file.is_empty() { own.clone() } else { folder.join(file) };
            if !has_section(&target, wanted) {
                problems.push(format!("{}: {file} has no section {wanted}", page.display()));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// The pages that a text names by their paths from the root, each with an anchor, which may be empty.
fn mentions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let names = text.split("docs/").skip(1).map(|rest| {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_-/.#".contains(c);
        rest.split(|c| !is_path(c)).next().unwrap_or_default().trim_end_matches('.')
    });
    let pages = names.map(|name| name.split_once('#').unwrap_or((name, "")));
    pages.filter(|(page, _)| page.ends_with(".md"))
}

/// Files in which people find the path of a page: settings, alerts, comments, messages of tests.
fn files_that_name_pages() -> Vec<PathBuf> {
    let folders = ["benches", "config", "crates", "deploy", "examples", "scripts", "src", "tests"];
    let mut files: Vec<_> =
        folders.iter().flat_map(|folder| files_below(&Path::new(ROOT).join(folder))).collect();
    files.extend(["CHANGELOG.md", "Makefile", "SECURITY.md"].map(|name| Path::new(ROOT).join(name)));
    // This file has names that are wrong on purpose.
    files.retain(|file| !file.ends_with("tests/docs/sections.rs"));
    files
}

#[test]
fn every_page_that_a_file_names_exists() {
    let mut problems = Vec::new();
    for file in files_that_name_pages() {
        let bytes = fs::read(&file).expect("a readable file");
        for (name, wanted) in mentions(&String::from_utf8_lossy(&bytes)) {
            let page = Path::new(ROOT).join("docs").join(name);
            if !page.exists() || !wanted.is_empty() && !has_section(&page, wanted) {
                problems.push(format!("{}: there is no docs/{name}#{wanted}", file.display()));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn the_index_has_every_page() {
    let index = fs::read_to_string(Path::new(ROOT).join("docs/README.md")).expect("the index");
    for (page, _) in all_pages() {
        let Ok(name) = page.strip_prefix("docs") else { continue };
        let is_own = name == Path::new("README.md") || name.starts_with("decisions");
        let link = format!("]({}", name.display());
        assert!(is_own || index.contains(&link), "docs/README.md does not link {}", name.display());
    }
}

#[test]
fn anchors_are_those_of_github() {
    for (heading, expected) in [
        ("Redis Cluster", "redis-cluster"),
        ("Who is limited, and may I let them pass?", "who-is-limited-and-may-i-let-them-pass"),
        ("`the store rejects this process (credentials)`", "the-store-rejects-this-process-credentials"),
        ("Under the names of envoyproxy/ratelimit", "under-the-names-of-envoyproxyratelimit"),
        ("2,000 calls per second", "2000-calls-per-second"),
    ] {
        assert_eq!(anchor(heading), expected);
    }
}

#[test]
fn headings_in_code_are_none() {
    let text = "# A\n```sh\n# a comment\n```\n## B, C\n#!no\n";
    assert_eq!(headings(text), [(1, "A"), (2, "B, C")]);
}

#[test]
fn paths_of_pages_are_found_in_text() {
    let text = "See docs/a.md#b-c. And docs/d/e.md, docs/f.svg, https://example.com/docs/g.md#{h}";
    assert_eq!(mentions(text).collect::<Vec<_>>(), [("a.md", "b-c"), ("d/e.md", ""), ("g.md", "")]);
}
