//! The rules for dependencies: allowed licences, one registry, no banned crate, no unused crate.
//!
//! Reads `cargo metadata`, the sources and the lists below. It does not check advisories: their database
//! has to be downloaded, and a commit that passed yesterday must pass today.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// SPDX identifiers of licences that require no more than a notice.
const LICENCES: &[&str] =
    &["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Zlib"];

/// Crates that link the binary to libraries of the build machine.
const BANNED: &[&str] = &["native-tls", "openssl", "openssl-sys"];

/// Crates that only generated code uses, or that are named for a feature.
const GENERATED: &[&str] = &["tonic-prost", "proc-macro2"];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Its name in code, where that is another one.
    rename: Option<String>,
    req: String,
    /// The folder, if it is a crate of this workspace.
    path: Option<PathBuf>,
    /// `dev`, `build` or none.
    kind: Option<String>,
}

impl Dependency {
    /// The folders and files in which code must name the crate; otherwise the crate is unused.
    fn user_paths(&self) -> &'static [&'static str] {
        match self.kind.as_deref() {
            Some("dev") => &["src", "tests", "benches"],
            Some(_) => &["build.rs"],
            None => &["src"],
        }
    }

    fn is_used(&self, package: &Path) -> bool {
        let name = self.rename.as_ref().unwrap_or(&self.name).replace('-', "_");
        let is_named = |path: &str| is_named_below(&package.join(path), &name);
        GENERATED.contains(&self.name.as_str()) || self.user_paths().iter().any(|path| is_named(path))
    }
}

fn is_named_below(path: &Path, name: &str) -> bool {
    if !path.exists() {
        return false;
    }
    if path.is_dir() {
        let mut entries = std::fs::read_dir(path).expect("a readable folder");
        return entries.any(|entry| is_named_below(&entry.expect("a readable entry").path(), name));
    }
    path.extension().is_some_and(|extension| extension == "rs")
        && names_crate(&std::fs::read_to_string(path).expect("UTF-8"), name)
}

/// Whether a line of code has `name::` at the start of a path.
fn names_crate(text: &str, name: &str) -> bool {
    let is_start = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let named = |line: &str| line.match_indices(&format!("{name}::")).any(|(at, _)| is_start(&line[..at]));
    lines.any(named)
}

impl Package {
    /// A member of this workspace has no source.
    fn is_ours(&self) -> bool {
        self.source.is_none()
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let at = format!("{} {}", self.name, self.version);
        match self.license.as_deref() {
            None => problems.push(format!("{at}: no licence is declared")),
            Some(licence) if !is_allowed(licence) => problems.push(format!("{at}: licence `{licence}`")),
            Some(_) => {}
        }
        if self.source.as_deref().is_some_and(|source| source != CRATES_IO) {
            problems.push(format!("{at}: its source is {:?}, not crates.io", self.source));
        }
        if BANNED.contains(&self.name.as_str()) {
            problems.push(format!("{at}: banned crate"));
        }
        if !self.is_ours() {
            return problems;
        }
        let folder = self.manifest_path.parent().expect("a file of a folder");
        let wildcards =
            self.dependencies.iter().filter(|dependency| dependency.path.is_none() && dependency.req == "*");
        problems.extend(
            wildcards.map(|dependency| format!("{at}: any version of {} is accepted", dependency.name)),
        );
        let unused = self.dependencies.iter().filter(|dependency| !dependency.is_used(folder));
        problems.extend(unused.map(|dependency| format!("{at}: {} is not used", dependency.name)));
        problems
    }
}

/// Whether an SPDX expression can be met with [`LICENCES`] alone. `/` is the old spelling of OR.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = any_of(&mut words);
    // An expression with words left over was not understood, so it is not allowed.
    allowed && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words) -> bool {
    let mut allowed = all_of(words);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all_of(words);
    }
    allowed
}

fn all_of(words: &mut Words) -> bool {
    let mut allowed = one_licence(words);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one_licence(words);
    }
    allowed
}

fn one_licence(words: &mut Words) -> bool {
    match words.next() {
        Some("(") => any_of(words) & (words.next() == Some(")")),
        Some(identifier) => {
            // An exception only adds permissions: the licence before it decides.
            if words.next_if_eq(&"WITH").is_some() {
                words.next();
            }
            LICENCES.contains(&identifier)
        }
        None => false,
    }
}

#[test]
fn every_dependency_is_allowed_and_used() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");

    let problems: Vec<String> = metadata.packages.iter().flat_map(Package::problems).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What only `ratelimitctl` needs: the terminal, archives, the reader of logs, man pages and completions.
const NOT_IN_THE_SERVICE: [&str; 8] = [
    "clap_complete",
    "clap_mangen",
    "crossterm",
    "flate2",
    "indicatif",
    "ratatui",
    "ratelimitd-simulate",
    "ruzstd",
];

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

#[test]
fn licence_expressions_follow_spdx_precedence() {
    let table = [
        ("MIT", true),
        ("MIT OR LGPL-2.1-or-later", true),   // OR: one licence is enough
        ("MIT AND LGPL-2.1-or-later", false), // AND: both licences are required
        ("Unlicense/MIT", true),              // the old spelling of OR
        ("(MIT OR GPL-3.0) AND BSD-3-Clause", true), // brackets first
        ("GPL-3.0 OR MIT AND AGPL-3.0", false), // AND binds tighter than OR
        ("Apache-2.0 WITH LLVM-exception", true), // an exception restricts nothing
        ("GPL-2.0 WITH Classpath-exception-2.0", false), // an exception is not a licence
        ("(MIT", false),                      // not an expression
        ("MIT MIT", false),                   // not an expression
        ("", false),
    ];
    for (expression, allowed) in table {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }
}

#[test]
fn a_crate_is_used_where_a_path_starts_with_it() {
    let table = [
        ("use bb8::Pool;", true),
        ("    let pool = bb8::Pool::builder();", true),
        ("fn f(pool: &bb8::Pool) {}", true),
        ("use bb8_redis::bb8::Pool;", false), // another crate's module
        ("use my_bb8::Pool;", false),
        ("// as bb8::Pool does", false),
    ];
    for (text, expected) in table {
        assert_eq!(names_crate(text, "bb8"), expected, "{text}");
    }
}

fn project_file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// What follows `start` in the lines of a file.
fn values_after<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(start)).map(str::trim).collect()
}

/// Whether an image has a digest, or a tag with at least two numbers: `:1`, `:latest` and no tag change silently.
fn is_pinned_image(image: &str) -> bool {
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    let version = tag.trim_start_matches('v').split('-').next().unwrap_or_default();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    image.contains("@sha256:") || version.split('.').filter(|part| is_number(part)).count() >= 2
}

#[test]
fn images_are_pinned() {
    let (dockerfile, compose) = (project_file("Dockerfile"), project_file("docker-compose.yml"));
    let images = [values_after(&dockerfile, "FROM "), values_after(&compose, "image:")].concat();
    let names = images.iter().map(|image| image.split_whitespace().next().unwrap_or_default());
    // Neither an empty image nor another stage of the file comes from a registry.
    let stages: Vec<_> = images.iter().filter_map(|image| image.split_once(" AS ")).collect();
    let is_stage = |name: &str| stages.iter().any(|(_, stage)| *stage == name);
    let pulled: Vec<_> =
        names.filter(|name| !["scratch", "$BINARY"].contains(name) && !is_stage(name)).collect();
    assert!(pulled.len() >= 4, "{pulled:?}");
    for name in pulled {
        assert!(is_pinned_image(name), "`{name}` has no version");
    }
    assert!(
        !is_pinned_image("redis:7-bookworm") && !is_pinned_image("debian") && !is_pinned_image("x:latest")
    );
}

#[test]
fn actions_are_pinned_by_commit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows");
    let mut actions = 0;
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let text = std::fs::read_to_string(entry.expect("a readable entry").path()).expect("UTF-8");
        for action in ["- uses:", "uses:"].iter().flat_map(|start| values_after(&text, start)) {
            let commit = action.split_once('@').and_then(|(_, rest)| rest.split_whitespace().next());
            let is_commit = commit.is_some_and(|c| c.len() == 40 && c.bytes().all(|b| b.is_ascii_hexdigit()));
            assert!(is_commit, "`{action}` is not pinned by a commit");
            actions += 1;
        }
    }
    assert!(actions > 0);
}

#[test]
fn one_compiler_is_pinned_everywhere() {
    let toolchain = project_file("rust-toolchain.toml");
    let channel = values_after(&toolchain, "channel = ")[0].trim_matches('"');
    assert!(is_pinned_image(&format!("rust:{channel}")), "`{channel}` is not a version");
    let image = format!("rust:{channel}-");
    let dockerfile = project_file("Dockerfile");
    assert!(
        values_after(&dockerfile, "FROM ").iter().any(|from| from.starts_with(&image)),
        "no FROM {image}"
    );
}

#[test]
fn tools_of_pypi_are_pinned_by_hash() {
    for name in ["envoy", "grpcio", "valkey", "zig"] {
        let text = project_file(&format!("scripts/requirements/{name}.txt"));
        assert!(text.contains("==") && text.contains("--hash=sha256:"), "{name}: {text}");
    }
}

/// The owners in the addresses of this project in a text: `github.com/OWNER/ratelimitd`, also with an escaped dot, and
/// the images and charts in `ghcr.io/OWNER/`.
fn owners(text: &str) -> impl Iterator<Item = &str> {
    let after =
        ["github.com/", r"github\.com/", "ghcr.io/"].into_iter().flat_map(|host| text.split(host).skip(1));
    let parts = after.filter_map(|rest| rest.split_once('/'));
    let is_ours = |rest: &str| {
        let rest = rest.strip_prefix("charts/").unwrap_or(rest);
        rest.strip_prefix("ratelimitd").is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    parts.filter(move |(_, rest)| is_ours(rest)).map(|(owner, _)| owner)
}

fn files_below(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).expect("a readable folder");
    entries.flat_map(|entry| files_below(&entry.expect("a readable entry").path())).collect()
}

/// `repository` in `Cargo.toml` is the address of the project; without one the other files say OWNER.
#[test]
fn the_address_of_the_project_is_the_same_everywhere() {
    let repository = env!("CARGO_PKG_REPOSITORY");
    let owner = owners(repository).next().unwrap_or("OWNER");
    assert!(repository.is_empty() || owner != "OWNER", "{repository} is not github.com/<owner>/ratelimitd");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [
        ".github",
        "CONTRIBUTING.md",
        "README.md",
        "SECURITY.md",
        "crates",
        "deploy",
        "docs",
        "scripts",
        "src",
    ];
    let mut found = 0;
    for file in places.iter().flat_map(|place| files_below(&root.join(place))) {
        let bytes = std::fs::read(&file).expect("a readable file");
        for other in owners(&String::from_utf8_lossy(&bytes)) {
            assert_eq!(other, owner, "{}: an address of another owner", file.display());
            found += 1;
        }
    }
    assert!(found > 0);
}

#[test]
fn only_our_own_addresses_have_our_owner() {
    let text = r"github.com/a/ratelimitd ghcr.io/b/ratelimitd:1 github\.com/c/ratelimitd/x ghcr.io/d/charts/ratelimitd
        github.com/envoyproxy/ratelimit github.com/e/ratelimitd2 github.com/f/g/ratelimitd";
    assert_eq!(owners(text).collect::<Vec<_>>(), ["a", "c", "b", "d"]);
}
