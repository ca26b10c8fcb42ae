//! Collects the problems of one file while it is read.

use std::sync::Arc;

use crate::rules::problem::{Place, Problem};

/// Collects the problems of one file.
#[derive(Debug)]
pub(super) struct Report {
    pub file: Arc<str>,
    pub problems: Vec<Problem>,
}

impl Report {
    pub fn new(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), problems: Vec::new() }
    }

    pub fn place(&self, at: &At) -> Place {
        Place { file: Arc::clone(&self.file), line: Some(at.line), path: at.path.clone() }
    }

    pub fn error(&mut self, at: &At, reason: impl Into<String>) {
        self.problems.push(Problem::error(self.place(at), reason));
    }

    pub fn warn(&mut self, at: &At, reason: impl Into<String>) {
        self.problems.push(Problem::warning(self.place(at), reason));
    }
}

/// A line and the path of what stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct At {
    pub line: u32,
    pub path: String,
}

impl At {
    /// Something under a key of the map that is here.
    pub fn key(&self, name: &str, line: u32) -> Self {
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        };
        Self { line, path }
    }

    /// An element of the list that is here.
    pub fn element(&self, index: usize, line: u32) -> Self {
        let path = format!("{}[{index}]", self.path);
        Self { line, path }
    }

    /// The same path on another line.
    pub fn on(&self, line: u32) -> Self {
        Self { line, path: self.path.clone() }
    }
}
