//! What docs/supply-chain.md promises of versions, what the service links, and the address of the project.

use std::path::Path;
use std::process::Command;

use regex::Regex;

use super::pages::{ROOT, files_below};

fn project_file(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}

/// The first group of a pattern in each line of a text that it fits.
fn found<'t>(text: &'t str, pattern: &str) -> Vec<&'t str> {
    let pattern = Regex::new(&format!("(?m){pattern}")).expect("a pattern");
    pattern.captures_iter(text).map(|found| found.get(1).map_or("", |group| group.as_str())).collect()
}

/// A digest, or a tag with at least two numbers: `:1`, `:latest` and no tag change silently.
fn is_pinned(image: &str) -> bool {
    Regex::new(r"@sha256:|:v?\d+\.\d+[^:]*$").expect("a pattern").is_match(image)
}

#[test]
fn images_are_pinned() {
    let dockerfile = project_file("Dockerfile");
    let stages = found(&dockerfile, r"^FROM .* AS (\S+)");
    let compose = project_file("docker-compose.yml");
    let mut images = [found(&dockerfile, r"^FROM (\S+)"), found(&compose, r"^ *image: *(\S+)")].concat();
    // Neither an empty image nor another stage of the file comes from a registry.
    images.retain(|image| !["scratch", "$BINARY"].contains(image) && !stages.contains(image));
    assert!(images.len() >= 4, "{images:?}");
    for image in images {
        assert!(is_pinned(image), "`{image}` has no version");
    }
    for image in ["redis:7-bookworm", "debian", "x:latest"] {
        assert!(!is_pinned(image), "{image}");
    }
}

#[test]
fn actions_are_pinned_by_commit() {
    let workflows = files_below(&Path::new(ROOT).join(".github/workflows"));
    let texts = workflows.iter().map(|file| std::fs::read_to_string(file).expect("UTF-8"));
    let texts = texts.collect::<String>();
    let actions = found(&texts, r"^ *(?:- )?uses: *(.*)");
    assert!(!actions.is_empty());
    for action in actions {
        assert!(!found(action, r"@([0-9a-f]{40})\b").is_empty(), "`{action}` is not pinned by a commit");
    }
}

#[test]
fn one_compiler_is_pinned_everywhere() {
    let toolchain = project_file("rust-toolchain.toml");
    let channel = found(&toolchain, "^channel = \"(.*)\"")[0];
    let image = format!("rust:{channel}");
    assert!(is_pinned(&image), "`{channel}` is not a version");
    assert!(project_file("Dockerfile").contains(&format!("FROM {image}-")), "no FROM {image}");
}

/// The owners in the addresses of this project in a text: `github.com/OWNER/ratelimitd`, also with an escaped dot, and
/// the images and charts in `ghcr.io/OWNER/`.
fn owners(text: &str) -> Vec<&str> {
    found(text, r"(?:github\\?\.com|ghcr\.io)/([^/\s]+)/(?:charts/)?ratelimitd(?:[^a-zA-Z0-9]|$)")
}

/// `repository` in `Cargo.toml` is the address of the project; without one the other files say OWNER.
#[test]
fn the_address_of_the_project_is_the_same_everywhere() {
    let repository = env!("CARGO_PKG_REPOSITORY");
    let owner = owners(repository).first().copied().unwrap_or("OWNER");
    assert!(repository.is_empty() || owner != "OWNER", "{repository} is not github.com/<owner>/ratelimitd");
    let folders =
        [".github", "crates", "deploy", "docs", "scripts", "src"].map(|name| Path::new(ROOT).join(name));
    let pages = ["CONTRIBUTING.md", "README.md", "SECURITY.md"].map(|name| Path::new(ROOT).join(name));
    let mut count = 0;
    for file in folders.iter().flat_map(|folder| files_below(folder)).chain(pages) {
        let bytes = std::fs::read(&file).expect("a readable file");
        for other in owners(&String::from_utf8_lossy(&bytes)) {
            assert_eq!(other, owner, "{}: an address of another owner", file.display());
            count += 1;
        }
    }
    assert!(count > 0);
    let text = r"github.com/a/ratelimitd ghcr.io/b/ratelimitd:1 github\.com/c/ratelimitd/x ghcr.io/d/charts/ratelimitd
        github.com/envoyproxy/ratelimit github.com/e/ratelimitd2 github.com/f/g/ratelimitd";
    assert_eq!(owners(text), ["a", "b", "c", "d"]);
}

/// What only `ratelimitctl` needs: the terminal, the reader of logs, man pages and completions.
const NOT_IN_THE_SERVICE: [&str; 7] =
    ["clap_complete", "clap_mangen", "crossterm", "indicatif", "ratatui", "ratelimitd-simulate", "ruzstd"];

#[test]
fn the_service_does_not_link_what_only_people_need() {
    let crates_with = |features: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
            .args(features)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let has = |crates: &str, name: &str| {
        crates.lines().any(|line| line.split_once(' ').is_some_and(|(found, _)| found == name))
    };
    let (service, both) = (crates_with(&["--no-default-features"]), crates_with(&[]));
    for name in NOT_IN_THE_SERVICE {
        assert!(has(&both, name) && !has(&service, name), "{name}");
    }
}
