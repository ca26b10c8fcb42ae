//! Problems of rule files: severity, file, line, path in the document, reason.

use std::fmt;
use std::sync::Arc;

/// Whether a problem prevents the rules from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The rules cannot be used.
    Error,
    /// The rules can be used, but contain a probable mistake.
    Warning,
}

/// A location in the rule files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The path of the file as given or found.
    pub file: Arc<str>,
    /// From 1; `None` for the file as a whole.
    pub line: Option<u32>,
    /// The path within the document, such as `descriptors[0].rate_limit`; empty for the document itself.
    pub path: String,
}

impl Location {
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

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// The line to change.
    pub location: Location,
    /// One sentence for the author of the file: what is wrong, and what to write instead.
    pub reason: String,
}

impl Problem {
    pub(super) fn error(location: Location, reason: impl Into<String>) -> Self {
        Self { severity: Severity::Error, location, reason: reason.into() }
    }

    pub(super) fn warning(location: Location, reason: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, location, reason: reason.into() }
    }

    /// Whether it prevents the rules from being used.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `file:line: reason (at path)`, with `warning: ` before the reason of a warning.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.is_error() {
            f.write_str("warning: ")?;
        }
        f.write_str(&self.reason)?;
        if !self.location.path.is_empty() {
            write!(f, " (at {})", self.location.path)?;
        }
        Ok(())
    }
}

/// All problems of a set of rule files, in the order of files and lines. Displayed one per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts `problems` by the position of their file in `files`, then by line; equal ones stay in order.
    pub(super) fn sorted(mut problems: Vec<Problem>, files: &[Arc<str>]) -> Self {
        let rank = |problem: &Problem| files.iter().position(|file| *file == problem.location.file);
        problems.sort_by_cached_key(|problem| (rank(problem), problem.location.line));
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
