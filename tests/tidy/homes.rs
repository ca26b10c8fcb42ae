//! A type is at home: its inherent methods stand in its own file or in child modules of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemImpl, ItemMod, Type};

use crate::source::{Source, production, report};

/// The types and the inherent `impl` blocks of a file. Those of tests are left out.
#[derive(Default)]
struct FileTypes {
    types: Vec<String>,
    impls: Vec<String>,
}

/// Whether an item is there only for tests.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|ident| ident == "test")
    })
}

impl<'ast> Visit<'ast> for FileTypes {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(item) => self.types.push(item.ident.to_string()),
            Item::Enum(item) => self.types.push(item.ident.to_string()),
            Item::Union(item) => self.types.push(item.ident.to_string()),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if let (None, Type::Path(path)) = (&block.trait_, &*block.self_ty)
            && let Some(last) = path.path.segments.last()
        {
            self.impls.push(last.ident.to_string());
        }
    }
}

/// The crate of a file: `crates/engine`, or `src` of the service.
fn crate_of(file: &Path) -> PathBuf {
    let parts = if file.starts_with("crates") { 2 } else { 1 };
    file.iter().take(parts).collect()
}

/// The folder of a module's children; `None` for a module in one file, which has none.
fn children_of(home: &Path) -> Option<&Path> {
    let is_parent = home.ends_with("mod.rs") || home.ends_with("lib.rs");
    home.parent().filter(|_| is_parent)
}

/// The blocks that stand neither in the file of a type of this name in their crate nor in a child module of it.
fn away_from_home(sources: &[Source]) -> Vec<String> {
    let mut homes: BTreeMap<(PathBuf, String), Vec<&Path>> = BTreeMap::new();
    let mut impls = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let mut found = FileTypes::default();
        let file = syn::parse_file(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.name()));
        found.visit_file(&file);
        for name in found.types {
            homes.entry((crate_of(&source.path), name)).or_default().push(&source.path);
        }
        impls.extend(found.impls.into_iter().map(|name| (&source.path, name)));
    }
    let mut away = Vec::new();
    for (path, name) in impls {
        let homes = homes.get(&(crate_of(path), name.clone())).map_or(&[][..], Vec::as_slice);
        let is_home = |home: &&Path| {
            *home == path.as_path() || children_of(home).is_some_and(|folder| path.starts_with(folder))
        };
        if !homes.iter().any(is_home) {
            let homes: Vec<_> = homes.iter().map(|home| home.display().to_string()).collect();
            away.push(format!("{}: impl {name}, whose home is {}", path.display(), homes.join(", ")));
        }
    }
    away
}

#[test]
fn methods_are_at_home() {
    report(&away_from_home(&production()));
}

#[test]
fn a_method_away_from_home_is_found() {
    let source = |(path, text): (&str, &str)| Source { path: path.into(), text: text.into() };
    let files = [
        ("crates/a/src/x.rs", "pub struct X; impl X {} impl Y {} impl Clone for Y {}"),
        ("crates/a/src/y/mod.rs", "pub enum Y {}"),
        ("crates/a/src/y/part/deep.rs", "impl<T> super::super::Y<T> {}"),
        ("crates/a/src/z.rs", "impl X {}\n#[cfg(test)] mod tests { impl X {} }"),
        ("crates/b/src/x.rs", "struct X;"),
        ("crates/a/src/x/tests.rs", "impl X {}"),
    ];
    let expected = [
        "crates/a/src/x.rs: impl Y, whose home is crates/a/src/y/mod.rs",
        "crates/a/src/z.rs: impl X, whose home is crates/a/src/x.rs",
    ];
    assert_eq!(away_from_home(&files.map(source)), expected);
}
