//! What the dependencies may be: their licences, where they come from, and the crates that must not slip in.
//!
//! Reads `cargo metadata` and the lists below, nothing else. Advisories are left out on purpose: their database has
//! to be fetched, and a build that was green yesterday must be green today.

use std::process::Command;

use serde::Deserialize;

/// SPDX identifiers that ask no more of us than a notice.
const LICENCES: &[&str] =
    &["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "Unicode-3.0", "Zlib"];

/// Crates that would tie the binary to libraries of the system it was built on.
const BANNED: &[&str] = &["native-tls", "openssl", "openssl-sys"];

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
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
}

impl Package {
    /// Ours: a member of this workspace has no source.
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
            problems.push(format!("{at}: comes from {:?}, not from crates.io", self.source));
        }
        if BANNED.contains(&self.name.as_str()) {
            problems.push(format!("{at}: is banned"));
        }
        let wildcards = self.dependencies.iter().filter(|dependency| self.is_ours() && dependency.req == "*");
        problems
            .extend(wildcards.map(|dependency| format!("{at}: any version of {} will do", dependency.name)));
        problems
    }
}

/// Whether an SPDX expression can be met with [`LICENCES`] alone. `/` is the old spelling of OR.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = any_of(&mut words);
    // Left-over words mean that the expression was not understood, so it is not allowed either.
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
            // An exception only adds permissions; the licence before it is what counts.
            if words.next_if_eq(&"WITH").is_some() {
                words.next();
            }
            LICENCES.contains(&identifier)
        }
        None => false,
    }
}

#[test]
fn every_dependency_is_allowed() {
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

#[test]
fn licence_expressions() {
    let table = [
        ("MIT", true),
        ("MIT OR LGPL-2.1-or-later", true),          // one side is enough
        ("MIT AND LGPL-2.1-or-later", false),        // both are asked
        ("Unlicense/MIT", true),                     // the old spelling
        ("(MIT OR GPL-3.0) AND BSD-3-Clause", true), // brackets first
        ("GPL-3.0 OR MIT AND AGPL-3.0", false),      // AND binds tighter than OR
        ("Apache-2.0 WITH LLVM-exception", true),    // an exception takes nothing away
        ("GPL-2.0 WITH Classpath-exception-2.0", false), // and gives no licence either
        ("(MIT", false),                             // not an expression
        ("MIT MIT", false),                          // not one either
        ("", false),
    ];
    for (expression, allowed) in table {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }
}
