//! Problems of rule files: severity, file, line, path in the document, reason.
//!
//! A file of the wrong kind has as many problems as lines, and each may quote the file. So both the number of problems
//! kept per file and the length of their texts are bounded.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base::escaped;

/// Problems listed per file. Further ones are only counted.
const MAX_LISTED: usize = 100;
/// Characters of a reason or a path: enough for any message that quotes names of ordinary length.
const MAX_TEXT_CHARS: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The rules cannot be used.
    Error,
    /// The rules can be used, but contain a probable mistake.
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// As given or found.
    pub file: Arc<str>,
    /// From 1; `None` for the file as a whole.
    pub line: Option<u32>,
    /// The path within the document, such as `descriptors[0].rate_limit`; empty for the document itself.
    pub path: String,
}

impl Location {
    pub fn file(file: Arc<str>) -> Self {
        Self { file, line: None, path: String::new() }
    }

    pub fn line(file: Arc<str>, line: u32) -> Self {
        Self { file, line: Some(line), path: String::new() }
    }
}

/// `file:line`; without a line the file and the path.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None if self.path.is_empty() => f.write_str(&self.file),
            None => write!(f, "{} (at {})", self.file, self.path),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    /// The line to change.
    pub location: Location,
    /// One sentence for the author of the file: what is wrong, and what to write instead.
    pub reason: String,
}

impl Problem {
    pub(super) fn error(location: Location, reason: impl Into<String>) -> Self {
        Self::new(Severity::Error, location, reason.into())
    }

    pub(super) fn warning(location: Location, reason: impl Into<String>) -> Self {
        Self::new(Severity::Warning, location, reason.into())
    }

    fn new(severity: Severity, mut location: Location, reason: String) -> Self {
        location.path = shortened(escaped(location.path));
        Self { severity, location, reason: shortened(escaped(reason)) }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `file:line: reason (at path)`, with `warning: ` before the reason of a warning.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location.line {
            Some(line) => write!(f, "{}:{line}: ", self.location.file)?,
            None => write!(f, "{}: ", self.location.file)?,
        }
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

/// Shortens a foreign text for a message.
pub fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT_CHARS) {
        text.truncate(end);
        text.push_str("...");
        text.shrink_to_fit();
    }
    text
}

/// Collects problems in any order, and equal ones once.
#[derive(Clone, Debug, Default)]
pub(super) struct ProblemCollector {
    files: Vec<FileProblems>,
    indexes: HashMap<Arc<str>, usize>,
}

#[derive(Clone, Debug)]
struct FileProblems {
    file: Arc<str>,
    errors: KeptProblems,
    warnings: KeptProblems,
}

/// The first [`MAX_LISTED`] problems of one severity, and the number of further ones.
#[derive(Clone, Debug, Default)]
struct KeptProblems {
    first: Vec<Problem>,
    further: usize,
}

impl KeptProblems {
    fn push(&mut self, problem: Problem) {
        if self.first.contains(&problem) {
            return;
        }
        if self.first.len() < MAX_LISTED {
            self.first.push(problem);
        } else {
            self.further += 1;
        }
    }

    fn count(&self) -> usize {
        self.first.len() + self.further
    }
}

impl ProblemCollector {
    pub fn push(&mut self, problem: Problem) {
        let file = self.file_mut(&problem.location.file);
        match problem.severity {
            Severity::Error => file.errors.push(problem),
            Severity::Warning => file.warnings.push(problem),
        }
    }

    pub fn append(&mut self, other: Self) {
        for FileProblems { file, errors, warnings } in other.files {
            let into = self.file_mut(&file);
            for (into, from) in [(&mut into.errors, errors), (&mut into.warnings, warnings)] {
                from.first.into_iter().for_each(|problem| into.push(problem));
                into.further += from.further;
            }
        }
    }

    pub fn drop_warnings(&mut self) {
        self.files.iter_mut().for_each(|file| file.warnings = KeptProblems::default());
    }

    fn file_mut(&mut self, file: &Arc<str>) -> &mut FileProblems {
        let index = *self.indexes.entry(Arc::clone(file)).or_insert_with(|| {
            let (errors, warnings) = (KeptProblems::default(), KeptProblems::default());
            self.files.push(FileProblems { file: Arc::clone(file), errors, warnings });
            self.files.len() - 1
        });
        &mut self.files[index]
    }
}

impl FileProblems {
    /// The problems by line, with errors before warnings if not all can be listed. The last one says how many are
    /// omitted.
    fn listed(self) -> impl Iterator<Item = Problem> {
        let room = MAX_LISTED - self.errors.first.len();
        let (errors, warnings) = (self.errors.further, self.warnings.count().saturating_sub(room));
        let further = (errors + warnings > 0).then(|| {
            let problem = if errors > 0 { Problem::error } else { Problem::warning };
            let reason = format!("and {errors} more errors and {warnings} more warnings in this file");
            problem(Location::file(self.file), reason)
        });
        let mut listed = self.errors.first;
        listed.extend(self.warnings.first.into_iter().take(room));
        listed.sort_by_key(|problem| problem.location.line);
        listed.into_iter().chain(further)
    }
}

/// The problems of a set of rule files by file and line: at most `MAX_LISTED` per file, then one that says how many
/// more there are. Displayed one per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    listed: Vec<Problem>,
    errors: usize,
    warnings: usize,
}

impl Problems {
    /// Sorts the problems by the position of their file in `files`, then by line; on one line errors come first.
    pub(super) fn sorted(collected: ProblemCollector, files: &[Arc<str>]) -> Self {
        let ranks: HashMap<_, _> = files.iter().enumerate().map(|(rank, file)| (file, rank)).collect();
        let mut of_files = collected.files;
        of_files.sort_by_key(|problems| ranks.get(&problems.file));
        Self {
            errors: of_files.iter().map(|problems| problems.errors.count()).sum(),
            warnings: of_files.iter().map(|problems| problems.warnings.count()).sum(),
            listed: of_files.into_iter().flat_map(FileProblems::listed).collect(),
        }
    }

    pub(super) fn one_error(location: Location, reason: impl Into<String>) -> Self {
        Self { listed: vec![Problem::error(location, reason)], errors: 1, warnings: 0 }
    }

    /// In order.
    pub fn all(&self) -> &[Problem] {
        &self.listed
    }

    pub fn first_error(&self) -> Option<String> {
        let first = self.listed.iter().find(|problem| problem.severity == Severity::Error);
        first.map(ToString::to_string)
    }

    /// Number of errors, listed or not.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Number of warnings, listed or not.
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.listed.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(found: impl IntoIterator<Item = Problem>, files: &[Arc<str>]) -> Problems {
        let mut collector = ProblemCollector::default();
        found.into_iter().for_each(|problem| collector.push(problem));
        Problems::sorted(collector, files)
    }

    #[test]
    fn a_file_lists_a_hundred_problems_and_counts_the_others() {
        let file: Arc<str> = "a.yaml".into();
        let at = |line| Location::line(Arc::clone(&file), line);
        let found = (1..=150).map(|line| Problem::warning(at(line), format!("{line}")));
        let found = found.chain((151..=200).map(|line| Problem::error(at(line), format!("{line}"))));
        let all = problems(found, std::slice::from_ref(&file));
        assert_eq!((all.errors(), all.warnings()), (50, 150));
        let lines: Vec<_> = all.all().iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 101);
        assert_eq!((&*lines[49], &*lines[50]), ("a.yaml:50: warning: 50", "a.yaml:151: 151"));
        assert_eq!(lines[100], "a.yaml: warning: and 0 more errors and 100 more warnings in this file");

        let found = (1..=2_000).map(|line| Problem::error(at(line), "x".repeat(5_000)));
        let all = problems(found, std::slice::from_ref(&file));
        assert_eq!(all.errors(), 2_000);
        assert!(all.to_string().len() < 110_000);
        assert!(all.to_string().ends_with("a.yaml: and 1900 more errors and 0 more warnings in this file"));
    }

    #[test]
    fn a_problem_is_one_line_whatever_it_quotes() {
        let location = Location { path: "a.b\r\nc".to_owned(), ..Location::line("a.yaml".into(), 1) };
        let problem = Problem::warning(location, "key 'x\nERROR forged\u{1b}[2J' is odd");
        let expected = r"a.yaml:1: warning: key 'x\nERROR forged\u{1b}[2J' is odd (at a.b\r\nc)";
        assert_eq!(problem.to_string(), expected);
    }

    #[test]
    fn equal_problems_are_listed_once_and_files_keep_their_order() {
        let [first, second]: [Arc<str>; 2] = ["z.yaml".into(), "a.yaml".into()];
        let error = |file: &Arc<str>, line| Problem::error(Location::line(Arc::clone(file), line), "bad");
        let found = [error(&second, 2), error(&first, 7), error(&second, 1), error(&first, 7)];
        let all = problems(found, &[first, second]);
        assert_eq!(all.to_string(), "z.yaml:7: bad\na.yaml:1: bad\na.yaml:2: bad");
        assert_eq!(all.errors(), 3);
    }
}
