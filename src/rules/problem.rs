//! What is wrong with rule files: file, line, place in the document, reason.

use std::fmt;
use std::sync::Arc;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The rules cannot be used.
    Error,
    /// The rules can be used, but hardly mean what was meant.
    Warning,
}

/// Where in the rule files something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file as it was named or found.
    pub file: Arc<str>,
    /// From 1; `None` where the file as a whole is meant.
    pub line: Option<u32>,
    /// The path within the document, as `descriptors[0].rate_limit`; empty at the top.
    pub path: String,
}

impl Place {
    /// A file as a whole.
    #[must_use]
    pub fn file(file: Arc<str>) -> Self {
        Self { file, line: None, path: String::new() }
    }

    /// A line of a file.
    #[must_use]
    pub fn line(file: Arc<str>, line: u32) -> Self {
        Self { file, line: Some(line), path: String::new() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub place: Place,
    /// What it is, in a sentence for the person who wrote the file.
    pub reason: String,
}

impl Problem {
    pub(super) fn error(place: Place, reason: impl Into<String>) -> Self {
        Self { severity: Severity::Error, place, reason: reason.into() }
    }

    pub(super) fn warning(place: Place, reason: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, place, reason: reason.into() }
    }

    /// Whether the rules cannot be used because of it.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `file:line: reason (at path)`; a warning says so before its reason.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.is_error() {
            f.write_str("warning: ")?;
        }
        f.write_str(&self.reason)?;
        if !self.place.path.is_empty() {
            write!(f, " (at {})", self.place.path)?;
        }
        Ok(())
    }
}

/// Everything wrong with a set of rule files, in the order of files and lines. Shown one to a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Puts `problems` in order: files as they came in `files`, then lines, then as they were found.
    pub(super) fn sorted(mut problems: Vec<Problem>, files: &[Arc<str>]) -> Self {
        let rank = |problem: &Problem| files.iter().position(|file| *file == problem.place.file);
        problems.sort_by_cached_key(|problem| (rank(problem), problem.place.line));
        problems.dedup();
        Self(problems)
    }

    /// The problems in order.
    #[must_use]
    pub fn all(&self) -> &[Problem] {
        &self.0
    }

    /// Whether at least one is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(Problem::is_error)
    }

    pub(super) fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
