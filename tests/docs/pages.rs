//! The pages of the project as a whole: where their links lead, and how long the first one is.

use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const LONGEST_README: usize = 300;

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

/// What stands between `](` and `)`, without the place within the page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.split('#').next().unwrap_or_default())
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(ROOT);
    for page in pages(root, false).into_iter().chain(pages(&root.join("docs"), true)) {
        let text = std::fs::read_to_string(&page).expect("a page is text");
        let folder = page.parent().expect("a page is in a folder");
        for target in links(&text).filter(|target| !target.contains("://") && !target.is_empty()) {
            assert!(folder.join(target).exists(), "{}: there is no {target}", page.display());
        }
    }
}

#[test]
fn the_readme_stays_short() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("a README");
    let lines = text.lines().count();
    assert!(lines <= LONGEST_README, "{lines} lines, more than {LONGEST_README}: depth goes to docs/");
}
