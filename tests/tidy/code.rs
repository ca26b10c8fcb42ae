//! The modules of a crate: what each defines and which paths it names. Code under `#[cfg(test)]` is left out. Names are
//! followed through `use` and `pub use` to the file that defines them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::reader::Reader;
use crate::source::Source;

/// Names from the crate's root: `["store", "memory"]`; the root itself is empty.
pub type ModulePath = Vec<String>;

/// A name that is re-exported more often than this counts as not found.
const LONGEST_CHAIN: usize = 16;

#[derive(Default)]
pub struct Module {
    pub file: PathBuf,
    pub items: BTreeSet<String>,
    /// What `use` brings in: the name here, and the path that it stands for.
    pub imports: BTreeMap<String, Vec<String>>,
}

/// A path as the code has it, for example `super::Limit`.
pub struct Reference {
    pub file: PathBuf,
    pub module: ModulePath,
    pub path: Vec<String>,
    pub line: usize,
}

/// A type or a function and the place of its definition.
pub struct Definition {
    pub name: String,
    pub file: PathBuf,
    pub line: usize,
}

#[derive(Default)]
pub struct Code {
    pub modules: BTreeMap<ModulePath, Module>,
    pub references: Vec<Reference>,
    pub types: Vec<Definition>,
    /// Without the functions of `impl Trait for`: the trait chose their names.
    pub functions: Vec<Definition>,
}

impl Code {
    /// `sources` are the files of one crate, with paths from its root: `store/memory/mod.rs`.
    pub fn read(sources: &[Source]) -> Self {
        let mut code = Self::default();
        let mut tests = Vec::new();
        for source in sources {
            let module = module_path(&source.path);
            tests.extend(Reader::new(&mut code, &source.path, module).read(&source.text));
        }
        code.drop_tests(&tests);
        code
    }

    /// Removes the modules in files of their own that are declared `#[cfg(test)] mod name;`.
    fn drop_tests(&mut self, tests: &[ModulePath]) {
        let is_test = |module: &ModulePath| tests.iter().any(|test| module.starts_with(test));
        let files: BTreeSet<PathBuf> = self
            .modules
            .iter()
            .filter(|(path, _)| is_test(path))
            .map(|(_, module)| module.file.clone())
            .collect();
        self.modules.retain(|path, _| !is_test(path));
        self.references.retain(|reference| !files.contains(&reference.file));
        self.types.retain(|definition| !files.contains(&definition.file));
        self.functions.retain(|definition| !files.contains(&definition.file));
    }

    /// The path from the crate's root, re-exports not followed. `None` for other crates and for local names.
    pub fn absolute(&self, from: &ModulePath, path: &[String]) -> Option<ModulePath> {
        let (start, rest) = start(from, path);
        let is_ours = rest.len() < path.len() || self.has_child(&start, rest.first()?);
        is_ours.then(|| [&start, rest].concat())
    }

    /// The file that defines what the path names, and the name there. `None` for a module, another crate's item and a
    /// local name.
    pub fn definition(&self, from: &ModulePath, path: &[String]) -> Option<(&PathBuf, String)> {
        self.follow(from, path, LONGEST_CHAIN)
    }

    fn follow(&self, from: &ModulePath, path: &[String], hops: usize) -> Option<(&PathBuf, String)> {
        let (mut at, mut rest) = start(from, path);
        loop {
            let (name, tail) = rest.split_first()?;
            if self.has_child(&at, name) {
                at.push(name.clone());
                rest = tail;
                continue;
            }
            let module = self.modules.get(&at)?;
            if module.items.contains(name) {
                return Some((&module.file, name.clone()));
            }
            let target = module.imports.get(name).filter(|_| hops > 0)?;
            return self.follow(&at, &[target, tail].concat(), hops - 1);
        }
    }

    fn has_child(&self, module: &ModulePath, name: &String) -> bool {
        self.modules.contains_key(&[module.as_slice(), std::slice::from_ref(name)].concat())
    }
}

/// Where a path starts, and what of it is left: `super::a` in `x::y` is `a` in `x`.
fn start<'p>(from: &ModulePath, path: &'p [String]) -> (ModulePath, &'p [String]) {
    let (mut at, mut rest) = (from.clone(), path);
    while let [first, tail @ ..] = rest {
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            _ => break,
        }
        rest = tail;
    }
    (at, rest)
}

fn module_path(file: &Path) -> ModulePath {
    let parts = file.with_extension("");
    let mut path: ModulePath = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}
