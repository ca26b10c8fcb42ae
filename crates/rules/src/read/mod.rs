//! Reads one rule file or resource into drafts of rules, and reports everything that is wrong in it.

mod document;
mod draft;
mod fields;
mod limit;
mod merge_keys;
mod metadata;
mod pauses;
mod tiers;
mod yaml11;

use std::sync::Arc;

pub(super) use document::{ReadContext, read_document};
pub(super) use draft::{DomainDraft, LimitDraft, NodeDraft};
pub(crate) use fields::type_and_text;
pub(crate) use merge_keys::{Entry, EntryReader};
pub(crate) use yaml11::ScalarValue;

use crate::problem::{Location, Problem, ProblemCollector};
use crate::yaml::excerpt;

/// Collects the problems of one file while it is read.
#[derive(Debug)]
pub(crate) struct FileReport {
    file: Arc<str>,
    pub problems: ProblemCollector,
}

impl FileReport {
    pub fn new(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), problems: ProblemCollector::default() }
    }

    pub fn location(&self, at: &Position) -> Location {
        Location {
            file: Arc::clone(&self.file),
            line: (at.line > 0).then_some(at.line),
            path: at.path.clone(),
        }
    }

    pub fn error(&mut self, at: &Position, reason: impl Into<String>) {
        self.problems.push(Problem::error(self.location(at), reason));
    }

    pub fn warn(&mut self, at: &Position, reason: impl Into<String>) {
        self.problems.push(Problem::warning(self.location(at), reason));
    }
}

/// A line, and the path of the node on it: `descriptors[0].rate_limit`, empty for the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// From 1; 0 for a document without lines.
    pub line: u32,
    pub path: String,
}

impl Position {
    /// The document as a whole, which starts on `line`.
    pub fn document(line: u32) -> Self {
        Self { line, path: String::new() }
    }

    /// The value under a key of the map at this position. Shortens a long name, because every path below repeats it.
    pub fn key(&self, name: &str, line: u32) -> Self {
        let (name, more) = excerpt(name);
        let path = match self.path.as_str() {
            "" => format!("{name}{more}"),
            path => format!("{path}.{name}{more}"),
        };
        Self { line, path }
    }

    pub fn element(&self, index: usize, line: u32) -> Self {
        let path = format!("{}[{index}]", self.path);
        Self { line, path }
    }

    pub fn on_line(&self, line: u32) -> Self {
        Self { line, path: self.path.clone() }
    }
}
