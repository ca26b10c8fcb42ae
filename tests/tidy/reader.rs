//! Reads one file into [`Code`], token by token.

use std::path::{Path, PathBuf};

use crate::code::{Code, Definition, Module, ModulePath, Reference};
use crate::tokens::{Token, tokens};

pub struct Reader<'c> {
    code: &'c mut Code,
    file: PathBuf,
    module: ModulePath,
    /// The open braces.
    blocks: Vec<Block>,
    /// The modules that are declared for tests only.
    tests: Vec<ModulePath>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Block {
    Module,
    Trait,
    Impl,
    TraitImpl,
    Other,
}

impl<'c> Reader<'c> {
    pub fn new(code: &'c mut Code, file: &Path, module: ModulePath) -> Self {
        Self { code, file: file.to_owned(), module, blocks: Vec::new(), tests: Vec::new() }
    }

    /// Returns the modules that are declared for tests only.
    pub fn read(mut self, text: &str) -> Vec<ModulePath> {
        self.open_module();
        let tokens = tokens(text);
        let mut at = 0;
        while at < tokens.len() {
            at += self.take(&tokens, at);
        }
        self.tests
    }

    /// Reads what starts here. Returns the number of its tokens.
    fn take(&mut self, tokens: &[Token], at: usize) -> usize {
        let rest = &tokens[at..];
        let before = at.checked_sub(1).map(|at| &tokens[at]);
        let starts_an_item = before
            .is_none_or(|token| ["}", "{", ";", "]", ")", "pub", "unsafe"].contains(&token.text.as_str()));
        let name = rest.get(1).filter(|token| token.is_name());
        match (rest[0].text.as_str(), name) {
            ("#", _) => self.take_attribute(rest),
            ("mod", Some(name)) if starts_an_item => self.take_module(rest, name),
            ("use", _) if starts_an_item => self.take_use(rest, before),
            ("impl", _) if starts_an_item => self.take_impl(rest),
            ("trait", Some(name)) => {
                self.define_type(name);
                self.take_until_block(rest, Block::Trait)
            }
            ("struct" | "enum", Some(name)) => {
                self.define_type(name);
                2
            }
            ("type", Some(name)) => {
                if !self.is_in_impl() {
                    self.define_type(name);
                }
                2
            }
            ("fn", Some(name)) => {
                self.define_function(name);
                2
            }
            ("const" | "static", Some(name)) if !name.is("fn") => {
                self.define(name);
                2
            }
            ("{", _) => self.open(Block::Other),
            ("}", _) => self.close(),
            _ if rest[0].is_name() => self.take_path(tokens, at),
            _ => 1,
        }
    }

    /// An attribute, and after `#[cfg(test)]` the item too.
    fn take_attribute(&mut self, rest: &[Token]) -> usize {
        let length = balanced(rest);
        let words: Vec<_> = rest[..length].iter().map(|token| token.text.as_str()).collect();
        if !words.ends_with(&["cfg", "(", "test", ")", "]"]) {
            return length;
        }
        let item = &rest[length..];
        if let [keyword, name, ..] = item
            && keyword.is("mod")
        {
            self.tests.push([self.module.as_slice(), std::slice::from_ref(&name.text)].concat());
        }
        let end = item.iter().position(|token| token.is(";") || token.is("{")).unwrap_or(0);
        length + end + if item[end].is("{") { balanced(&item[end..]) } else { 1 }
    }

    fn take_module(&mut self, rest: &[Token], name: &Token) -> usize {
        if rest.get(2).is_some_and(|token| token.is("{")) {
            self.blocks.push(Block::Module);
            self.module.push(name.text.clone());
            self.open_module();
        }
        3
    }

    fn take_impl(&mut self, rest: &[Token]) -> usize {
        let header = rest.iter().take_while(|token| !token.is("{"));
        let words: Vec<_> = header.map(|token| token.text.as_str()).collect();
        // `for<'a>` is no `for`.
        let names_a_trait = words.windows(2).any(|pair| pair[0] == "for" && pair[1] != "<");
        self.take_until_block(rest, if names_a_trait { Block::TraitImpl } else { Block::Impl })
    }

    fn take_until_block(&mut self, rest: &[Token], block: Block) -> usize {
        let end = rest.iter().position(|token| token.is("{")).unwrap_or(rest.len());
        let mut at = 1;
        while at < end {
            at += if rest[at].is_name() { self.take_path(rest, at) } else { 1 };
        }
        self.open(block);
        end + 1
    }

    fn take_use(&mut self, rest: &[Token], before: Option<&Token>) -> usize {
        let end = rest.iter().position(|token| token.is(";")).unwrap_or(rest.len());
        let mut leaves = Vec::new();
        use_leaves(&rest[1..end], &[], &mut leaves);
        let is_public = before.is_some_and(|token| token.is("pub") || token.is(")"));
        // A module file that passes a child's name on does not depend on the child.
        let is_passed_on = is_public && ["mod.rs", "lib.rs"].iter().any(|name| self.file.ends_with(name));
        for (name, path) in leaves {
            self.open_module().imports.insert(name, path.clone());
            if !is_passed_on {
                self.refer(path, rest[0].line);
            }
        }
        end + 1
    }

    fn take_path(&mut self, tokens: &[Token], at: usize) -> usize {
        let rest = &tokens[at..];
        let mut length = 1;
        while let [first, second, name, ..] = &rest[length..]
            && first.is(":")
            && second.is(":")
            && name.is_name()
        {
            length += 3;
        }
        let path = rest[..length].iter().filter(|token| token.is_name());
        // A field or a method has one dot before it, the rest of a struct has two.
        let dots = tokens[..at].iter().rev().take_while(|token| token.is(".")).count();
        if dots != 1 {
            self.refer(path.map(|token| token.text.clone()).collect(), rest[0].line);
        }
        length
    }

    fn open(&mut self, block: Block) -> usize {
        self.blocks.push(block);
        1
    }

    fn close(&mut self) -> usize {
        if self.blocks.pop() == Some(Block::Module) {
            self.module.pop();
        }
        1
    }

    fn is_in_impl(&self) -> bool {
        self.blocks.last().is_some_and(|block| [Block::Trait, Block::Impl, Block::TraitImpl].contains(block))
    }

    fn open_module(&mut self) -> &mut Module {
        let module = self.code.modules.entry(self.module.clone()).or_default();
        module.file.clone_from(&self.file);
        module
    }

    fn define(&mut self, name: &Token) -> Definition {
        if !self.is_in_impl() {
            self.open_module().items.insert(name.text.clone());
        }
        Definition { name: name.text.clone(), file: self.file.clone(), line: name.line }
    }

    fn define_type(&mut self, name: &Token) {
        let definition = self.define(name);
        self.code.types.push(definition);
    }

    fn define_function(&mut self, name: &Token) {
        let definition = self.define(name);
        if self.blocks.last() != Some(&Block::TraitImpl) {
            self.code.functions.push(definition);
        }
    }

    fn refer(&mut self, path: Vec<String>, line: usize) {
        let (file, module) = (self.file.clone(), self.module.clone());
        self.code.references.push(Reference { file, module, path, line });
    }
}

/// The tokens up to the bracket that closes the first one.
fn balanced(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// The names that a `use` brings in, each with its path.
fn use_leaves(tree: &[Token], before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    if let Some(group) = tree.iter().position(|token| token.is("{")) {
        let inner = &tree[group + 1..group + balanced(&tree[group..]) - 1];
        let before = [before, &names(&tree[..group])].concat();
        for branch in branches(inner) {
            use_leaves(branch, &before, found);
        }
        return;
    }
    let words = names(tree);
    let (path, alias) = match words.iter().position(|word| word == "as") {
        Some(at) => (&words[..at], words.last()),
        None => (&words[..], None),
    };
    let path = match path {
        [own] if own == "self" && !before.is_empty() => before.to_vec(),
        path => [before, path].concat(),
    };
    let is_glob = tree.last().is_some_and(|token| token.is("*"));
    if let Some(name) = alias.or(path.last()).filter(|_| !is_glob) {
        found.push((name.clone(), path.clone()));
    }
}

fn names(tokens: &[Token]) -> Vec<String> {
    tokens.iter().filter(|token| token.is_name()).map(|token| token.text.clone()).collect()
}

/// The parts between the commas that are in no inner group.
fn branches(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                found.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[start..]);
    found
}
