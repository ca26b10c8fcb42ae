//! No cycle among files: a reader can start with a file that uses no other, and each file can be understood with only
//! the files that it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::code::Code;
use crate::source::{Source, report, sources_below};

/// For each file, the files that it uses, with one of the names that it uses.
type Uses = BTreeMap<PathBuf, BTreeMap<PathBuf, String>>;

fn uses(code: &Code) -> Uses {
    let mut uses = Uses::new();
    for reference in &code.references {
        let Some((file, name)) = code.definition(&reference.module, &reference.path) else { continue };
        if *file != reference.file {
            let of_file = uses.entry(reference.file.clone()).or_default();
            of_file.entry(file.clone()).or_insert(name);
        }
    }
    uses
}

fn reachable<'u>(uses: &'u Uses, from: &'u PathBuf) -> BTreeSet<&'u PathBuf> {
    let (mut seen, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(file) = ahead.pop() {
        for used in uses.get(file).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(used) {
                ahead.push(used);
            }
        }
    }
    seen
}

/// The strongly connected components of two files and more.
fn cycles(uses: &Uses) -> BTreeSet<BTreeSet<&PathBuf>> {
    let reach: BTreeMap<_, _> = uses.keys().map(|file| (file, reachable(uses, file))).collect();
    let on_a_cycle = reach.iter().filter(|(file, reached)| reached.contains(*file));
    on_a_cycle
        .map(|(file, reached)| {
            let back = |other: &&PathBuf| reach.get(*other).is_some_and(|reached| reached.contains(file));
            reached.iter().copied().filter(back).collect()
        })
        .collect()
}

fn description(uses: &Uses, cycle: &BTreeSet<&PathBuf>) -> String {
    let mut lines = vec!["a cycle:".to_owned()];
    for file in cycle {
        for (used, name) in uses[*file].iter().filter(|(used, _)| cycle.contains(used)) {
            lines.push(format!("  {} -> {} for {name}", file.display(), used.display()));
        }
    }
    lines.join("\n")
}

#[test]
fn files_do_not_use_each_other_in_cycles() {
    let uses = uses(&Code::read(&sources_below("src")));
    let cycles = cycles(&uses);
    report(&cycles.iter().map(|cycle| description(&uses, cycle)).collect::<Vec<_>>());
}

/// The cycles of a crate made of these files: each a list of its files.
fn cycles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let sources: Vec<_> =
        files.iter().map(|(path, text)| Source { path: path.into(), text: (*text).into() }).collect();
    let uses = uses(&Code::read(&sources));
    let names = |cycle: &BTreeSet<&PathBuf>| cycle.iter().map(|file| file.display().to_string()).collect();
    cycles(&uses).iter().map(names).collect()
}

#[test]
fn cycles_are_found_however_they_are_written() {
    let two = |b: &str| {
        cycles_of(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B; pub struct A;"), ("b.rs", b)])
    };
    let cycle = [["a.rs", "b.rs"]];
    for b in [
        "use crate::a::A; pub struct B;",
        "use super::a::A; pub struct B;",
        "use crate::{a::{self, A}}; pub struct B;",
        "use crate::a::A as Other; pub struct B;",
        "use crate::a; pub struct B(a::A);",
        "pub struct B; fn f() { let _ = crate::a::A; }",
        "pub struct B; fn f() { println!(\"{:?}\", super::a::A); }",
        "pub struct B; mod inner { use super::super::a::A; }",
        "pub struct B; impl super::a::A { fn f() {} }",
    ] {
        assert_eq!(two(b), cycle, "{b}");
    }
    for b in [
        "use std::a::A; pub struct B;",
        "use crate::a; pub struct B;",
        "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
        "/// Not [`crate::a::A`].\npub struct B;",
        "pub struct B; fn f(x: X) { println!(\"{}\", x.a::<A>()) }",
    ] {
        assert!(two(b).is_empty(), "{b}");
    }
}

#[test]
fn names_are_followed_through_re_exports() {
    let folder = |module: &str, a: &str, b: &str| {
        cycles_of(&[("lib.rs", "mod f;"), ("f/mod.rs", module), ("f/a.rs", a), ("f/b.rs", b)])
    };
    let module = "pub use a::A; pub(crate) use self::b::B; mod a; mod b;";
    let cycle = [["f/a.rs", "f/b.rs"]];
    assert_eq!(folder(module, "use super::B; pub struct A;", "use super::A; pub struct B;"), cycle);
    assert_eq!(folder(module, "use crate::f::B; pub struct A;", "pub struct B(super::A);"), cycle);
    assert!(
        folder(module, "use super::B; pub struct A;", "pub struct B;").is_empty(),
        "a module that passes names on"
    );

    let module = "pub use a::A; mod a; mod b; pub struct Own; fn f(_: A) {}";
    let cycle = [["f/a.rs", "f/mod.rs"]];
    assert_eq!(
        folder(module, "pub struct A(super::Own);", ""),
        cycle,
        "a module that uses what it passes on"
    );
    let module = "pub use a::A; mod a; mod b; pub struct Own;";
    assert!(folder(module, "pub struct A(super::Own);", "").is_empty());
}

#[test]
fn tests_in_files_of_their_own_are_left_out() {
    let a = "use super::b::B; pub struct A; #[cfg(test)] mod tests;";
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", a),
        ("a/tests.rs", "use super::A;"),
        ("b.rs", "pub struct B;"),
    ];
    assert!(cycles_of(&files).is_empty());
    let with_use = [files[0], files[1], files[2], ("b.rs", "use super::a::A; pub struct B;")];
    assert_eq!(cycles_of(&with_use), [["a/mod.rs", "b.rs"]]);
}

#[test]
fn a_cycle_is_described_by_the_names_that_are_used() {
    let sources = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::a::A; pub struct B;"),
    ];
    let sources = sources.map(|(path, text)| Source { path: path.into(), text: text.into() });
    let uses = uses(&Code::read(&sources));
    let (a, b) = (Path::new("a.rs").to_owned(), Path::new("b.rs").to_owned());
    let cycle = [&a, &b].into();
    assert_eq!(description(&uses, &cycle), "a cycle:\n  a.rs -> b.rs for B\n  b.rs -> a.rs for A");
}
