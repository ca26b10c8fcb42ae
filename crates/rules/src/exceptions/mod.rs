//! Loads exception files into the engine's exceptions, with file, line and reason for each problem.
//!
//! `*.csv` files, with many rows of few columns, are streamed: a row with a tier alone becomes 8 bytes. `*.yaml` files
//! contain few rows of all columns. One error rejects all files, and the active exceptions stay. Problems never
//! quote a row's value, which may be secret or personal. [`ExceptionReloader`] watches the files.

mod changes;
mod csv_columns;
mod csv_file;
mod live;
mod mentions;
mod reload;
mod row;
mod yaml_file;

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use base::{FindFiles as _, open_file, told_if_slow};
use engine::{Entry, Exceptions, ExceptionsBuilder, RowValue, address_of};

use crate::load::on_own_thread;
use crate::problem::{Location, Problem, ProblemCollector, Problems};
use crate::read::FileReport;
use crate::source::{MAX_EXCEPTION_BYTES, Source, display, is_csv};

pub use changes::{FileSummary, KindCounts, RowChanges};
pub use csv_columns::{CsvColumn, CsvColumnError, CsvColumns};
pub use csv_file::{CsvLines, RowFault};
pub use live::{LiveRow, NO_REASON, Origin, utc_text, value_text};
pub use mentions::{check_against_rules, latest_window_end, missing_in_rules};
pub use reload::ExceptionReloader;
pub use yaml_file::read_rows;

use changes::ChangeCounts;
use mentions::Mentions;

/// Rows with more than a tier, over all files. A row needs about 250 bytes.
const MAX_FULL_ROWS: usize = 100_000;
/// CSV rows over all files: a table of 107 MB.
const MAX_CSV_ROWS: u64 = 10_000_000;

/// Rows without errors, with reports about them.
#[derive(Debug, Default)]
pub struct LoadedExceptions {
    pub exceptions: Arc<Exceptions>,
    /// In reading order: by name.
    pub files: Vec<FileSummary>,
    /// Files that had rows and are gone.
    pub gone: Vec<FileSummary>,
    /// Probable mistakes that show without rules.
    pub warnings: Problems,
    mentions: Mentions,
}

/// What a load is for.
#[derive(Clone, Copy, Debug)]
pub struct ExceptionScope<'s> {
    /// Rows that end by this time are over; microseconds since the epoch.
    pub now_us: u64,
    /// `None`: all requests. Otherwise only a request with these entries, and every row keeps its line, even in CSV
    /// files.
    pub entries: Option<&'s [Entry]>,
    /// What CSV files call their columns; `None`: by their names.
    pub columns: Option<&'s CsvColumns>,
}

/// Loads exceptions from `path`: a file, or a directory tree with *.csv, *.yaml and *.yml files. `previous` holds the
/// active rows, for comparison.
///
/// # Errors
/// All problems of all files, including warnings, if at least one is an error.
pub fn load_exceptions(
    path: &Path,
    scope: ExceptionScope<'_>,
    previous: &LoadedExceptions,
) -> Result<LoadedExceptions, Problems> {
    told_if_slow(&[path], || load_source(&Source::of_exceptions(path, false), scope, previous))
}

fn load_source(
    source: &Source,
    scope: ExceptionScope<'_>,
    previous: &LoadedExceptions,
) -> Result<LoadedExceptions, Problems> {
    let (paths, problems) = source.find_files();
    let names: Vec<_> = paths.iter().map(|path| display(path)).collect();
    let load = || {
        let mut loader = Loader::new(scope, previous);
        problems.into_iter().for_each(|problem| loader.problems.push(problem));
        for path in &paths {
            loader.read_file(path);
        }
        loader.finish(&names)
    };
    on_own_thread(load)
}

struct Loader<'l> {
    scope: ExceptionScope<'l>,
    previous: &'l LoadedExceptions,
    builder: ExceptionsBuilder,
    changes: ChangeCounts<'l>,
    mentions: Mentions,
    problems: ProblemCollector,
    full_rows: usize,
    csv_rows: u64,
}

impl<'l> Loader<'l> {
    fn new(scope: ExceptionScope<'l>, previous: &'l LoadedExceptions) -> Self {
        Self {
            scope,
            previous,
            builder: ExceptionsBuilder::new(&previous.exceptions),
            changes: ChangeCounts::new(previous),
            mentions: Mentions::default(),
            problems: ProblemCollector::default(),
            full_rows: 0,
            csv_rows: 0,
        }
    }

    fn read_file(&mut self, path: &Path) {
        let name = display(path);
        self.changes.start_file(&name);
        let stream = match open_bounded(path) {
            Ok(stream) => BufReader::with_capacity(64 << 10, stream),
            Err(error) => {
                let reason = format!("cannot read the file: {error}");
                self.problems.push(Problem::error(Location::file(name), reason));
                return;
            }
        };
        let mut report = FileReport::new(&name);
        if is_csv(path) {
            self.read_csv(&name, stream, &mut report);
        } else {
            self.read_yaml(&name, stream, &mut report);
        }
        self.problems.append(report.problems);
    }

    fn finish(mut self, names: &[Arc<str>]) -> Result<LoadedExceptions, Problems> {
        let mut added = changes::AddedCounts::default();
        let exceptions = self.builder.build(&self.previous.exceptions, |row| added.count(row));
        let counted = self.changes.finish(&added, &exceptions);
        for (file, rows) in counted.repeated {
            let reason = format!(
                "{rows} rows duplicate the domain, key and value of an earlier row; the last one wins"
            );
            self.problems.push(Problem::warning(Location::file(file), reason));
        }
        let problems = Problems::sorted(self.problems, names);
        if problems.has_errors() {
            return Err(problems);
        }
        Ok(LoadedExceptions {
            exceptions: Arc::new(exceptions),
            files: counted.files,
            gone: counted.gone,
            warnings: problems,
            mentions: self.mentions,
        })
    }

    /// `true` if a request of the scope can have this entry.
    fn is_wanted(&self, key: &str, value: &RowValue) -> bool {
        self.scope.entries.is_none_or(|entries| {
            entries.iter().filter(|entry| entry.key == key).any(|entry| match value {
                RowValue::Exact(exact) => **exact == *entry.value,
                RowValue::Network(network) => {
                    address_of(&entry.value).is_some_and(|address| network.contains(address))
                }
            })
        })
    }
}

impl LoadedExceptions {
    /// Rows of each kind, over all files.
    pub fn kinds(&self) -> KindCounts {
        self.files.iter().fold(KindCounts::default(), |sum, file| sum + file.kinds)
    }
}

/// Opens a file and limits what is read of it, because it may grow.
fn open_bounded(path: &Path) -> io::Result<impl Read + use<>> {
    Ok(open_file(path, MAX_EXCEPTION_BYTES)?.take(MAX_EXCEPTION_BYTES))
}

#[cfg(test)]
mod tests;
