//! The types and functions that a source file defines, without those of its tests.

use std::path::PathBuf;

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod, TraitItemFn, Visibility};

use crate::source::Source;

/// A type or a function.
pub struct Definition {
    pub name: String,
    pub file: PathBuf,
    pub line: usize,
    pub is_public: bool,
    pub has_docs: bool,
}

#[derive(Default)]
pub struct Definitions {
    /// Structs, enums, unions, traits and aliases.
    pub types: Vec<Definition>,
    /// Free functions, functions of types, and functions that our traits declare.
    pub functions: Vec<Definition>,
}

impl Definitions {
    pub fn read(sources: &[Source]) -> Self {
        let mut all = Self::default();
        for source in sources.iter().filter(|source| !source.is_test()) {
            let file =
                syn::parse_file(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.name()));
            Reader { all: &mut all, file: source.path.clone() }.visit_file(&file);
        }
        all
    }
}

struct Reader<'a> {
    all: &'a mut Definitions,
    file: PathBuf,
}

impl Reader<'_> {
    fn definition(
        &self,
        ident: &Ident,
        visibility: Option<&Visibility>,
        attributes: &[Attribute],
    ) -> Definition {
        Definition {
            name: ident.to_string(),
            file: self.file.clone(),
            line: ident.span().start().line,
            is_public: matches!(visibility, Some(Visibility::Public(_))),
            has_docs: attributes.iter().any(|attribute| attribute.path().is_ident("doc")),
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let found = match item {
            Item::Struct(item) => Some((&item.ident, &item.vis, &item.attrs)),
            Item::Enum(item) => Some((&item.ident, &item.vis, &item.attrs)),
            Item::Union(item) => Some((&item.ident, &item.vis, &item.attrs)),
            Item::Trait(item) => Some((&item.ident, &item.vis, &item.attrs)),
            Item::Type(item) => Some((&item.ident, &item.vis, &item.attrs)),
            _ => None,
        };
        if let Some((ident, visibility, attributes)) = found {
            let definition = self.definition(ident, Some(visibility), attributes);
            self.all.types.push(definition);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let definition = self.definition(&function.sig.ident, Some(&function.vis), &function.attrs);
        self.all.functions.push(definition);
    }

    /// The names of a trait's functions are the trait's.
    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        if block.trait_.is_none() {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            let definition = self.definition(&function.sig.ident, Some(&function.vis), &function.attrs);
            self.all.functions.push(definition);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        let definition = self.definition(&function.sig.ident, None, &function.attrs);
        self.all.functions.push(definition);
    }
}

/// Whether an item is there only for tests.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|ident| ident == "test")
    })
}
