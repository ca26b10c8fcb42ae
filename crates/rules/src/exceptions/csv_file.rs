//! Reads a file of comma-separated values (RFC 4180) row by row: a value of requests and its tier.

use std::io::Read;
use std::sync::Arc;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Trim};
use engine::{Effect, ExceptionRow, Glob, RowSource, RowValue, TierRow};

use super::row::{COLUMNS, looks_like_network};
use super::{Loader, MAX_CSV_ROWS};
use crate::read::{FileReport, Position};

/// The columns of a CSV file, each once, in any order.
const CSV_COLUMNS: [&str; 4] = ["domain", "key", "value", "tier"];
/// Longer than any row with values that a request may have. A row that goes on for longer has a quote that does not end.
const MAX_ROW_BYTES: usize = 64 << 10;
/// A file with more errors than this is of another kind, and is not read on.
const MAX_ERRORS: u32 = 1_000;

/// The positions of the columns in a row.
struct Columns {
    domain: usize,
    key: usize,
    value: usize,
    tier: usize,
}

/// One row, with the line on which it starts.
struct CsvRow<'r> {
    line: u32,
    domain: &'r str,
    key: &'r str,
    value: &'r str,
    tier: &'r str,
}

impl Loader<'_> {
    /// Adds the rows of a file.
    pub(super) fn read_csv(&mut self, file: &Arc<str>, stream: impl Read, report: &mut FileReport) {
        // The number of columns of each row is checked here, so that the message says what is expected.
        let mut reader =
            ReaderBuilder::new().has_headers(false).flexible(true).trim(Trim::None).from_reader(stream);
        let mut record = StringRecord::new();
        let mut errors = 0;
        let Some(columns) = read_record(&mut reader, &mut record, report)
            .then(|| Columns::from_header(&record, report))
            .flatten()
        else {
            return;
        };
        while errors < MAX_ERRORS && read_record(&mut reader, &mut record, report) {
            let line = line_of(&record);
            let added = columns.row(&record, line).and_then(|row| self.add_csv_row(file, &row, report));
            if let Err(reason) = added {
                errors += 1;
                report.error(&Position::document(line), reason);
            }
        }
        if errors == MAX_ERRORS {
            let at = Position::document(line_of(&record));
            report.error(&at, format!("the file is not read on after {MAX_ERRORS} errors"));
        }
    }

    fn add_csv_row(
        &mut self,
        file: &Arc<str>,
        row: &CsvRow<'_>,
        report: &mut FileReport,
    ) -> Result<(), String> {
        check_row(row, report)?;
        self.csv_rows += 1;
        if self.csv_rows > MAX_CSV_ROWS {
            return Err(format!("all CSV files together have more than {MAX_CSV_ROWS} rows"));
        }
        self.mentions.add_tier_row(file, row.line, row.domain, row.key, row.tier)?;
        if self.scope.entries.is_some() {
            let row = exact_row(file, row);
            if self.is_wanted(&row.key, &row.value) {
                self.builder.add_row(row);
            }
            return Ok(());
        }
        let &CsvRow { domain, key, value, tier, .. } = row;
        self.builder.add_tier(TierRow { file, domain, key, value, tier }).map_err(|error| error.to_string())
    }
}

impl Columns {
    /// The columns that the first row names; every problem of it goes to `report`.
    fn from_header(header: &StringRecord, report: &mut FileReport) -> Option<Self> {
        let at = Position::document(line_of(header));
        let names: Vec<&str> = header.iter().map(str::trim).collect();
        if let [only] = names.as_slice()
            && only.contains([';', '\t'])
        {
            report.error(&at, "columns are separated by commas");
            return None;
        }
        let mut is_valid = true;
        for (index, name) in names.iter().enumerate() {
            let reason = match CSV_COLUMNS.contains(name) {
                true if names[..index].contains(name) => format!("the column '{name}' is named twice"),
                true => continue,
                false if COLUMNS.contains(name) => {
                    format!("the column '{name}' belongs in a YAML file; a CSV file has {EXPECTED}")
                }
                false => format!("unknown column '{name}': the first row of a CSV file names {EXPECTED}"),
            };
            report.error(&at, reason);
            is_valid = false;
        }
        let mut position = |wanted: &str| {
            let found = names.iter().position(|name| *name == wanted);
            if found.is_none() && is_valid {
                report.error(&at, format!("no column '{wanted}': the first row names {EXPECTED}"));
            }
            found
        };
        let [domain, key, value, tier] = CSV_COLUMNS.map(&mut position);
        let columns = Self { domain: domain?, key: key?, value: value?, tier: tier? };
        is_valid.then_some(columns)
    }

    fn row<'r>(&self, record: &'r StringRecord, line: u32) -> Result<CsvRow<'r>, String> {
        let field = |index| {
            record.get(index).filter(|_| record.len() == CSV_COLUMNS.len()).ok_or_else(|| {
                format!("expected 4 columns, found {}; a value with a comma must be in quotes", record.len())
            })
        };
        Ok(CsvRow {
            line,
            domain: field(self.domain)?,
            key: field(self.key)?,
            value: field(self.value)?,
            tier: field(self.tier)?,
        })
    }
}

const EXPECTED: &str = "domain, key, value and tier";

/// Reads the next row; false at the end of the file, and after an error, which goes to `report`.
fn read_record(reader: &mut Reader<impl Read>, record: &mut StringRecord, report: &mut FileReport) -> bool {
    let reason = match reader.read_record(record) {
        Ok(false) => return false,
        Ok(true) if record.as_slice().len() <= MAX_ROW_BYTES => return true,
        Ok(true) => {
            format!("the row is longer than {MAX_ROW_BYTES} bytes; probably a quote does not end")
        }
        Err(error) => match error.kind() {
            ErrorKind::Utf8 { pos, .. } => {
                let line = pos.as_ref().map_or(0, csv::Position::line);
                report.error(&Position::document(line_number(line)), "the row is not UTF-8");
                return false;
            }
            ErrorKind::Io(error) => format!("cannot read the file: {error}"),
            _ => error.to_string(),
        },
    };
    report.error(&Position::document(line_of(record)), reason);
    false
}

fn line_of(record: &StringRecord) -> u32 {
    line_number(record.position().map_or(0, csv::Position::line))
}

fn line_number(line: u64) -> u32 {
    // A file of 128 MB has fewer lines.
    u32::try_from(line).unwrap_or(u32::MAX)
}

fn check_row(row: &CsvRow<'_>, report: &mut FileReport) -> Result<(), String> {
    let fields = CSV_COLUMNS.into_iter().zip([row.domain, row.key, row.value, row.tier]);
    for (name, text) in fields {
        if text.is_empty() {
            return Err(format!("the column '{name}' is empty"));
        }
        if text.starts_with(' ') || text.ends_with(' ') {
            let reason = format!("'{name}' begins or ends with a space, which is a part of it");
            report.warn(&Position::document(row.line), reason);
        }
    }
    if row.domain != "*" && row.domain.contains('*') {
        return Err("the domain of a CSV row is a name, or '*' for all domains".to_owned());
    }
    if looks_like_network(row.value) {
        return Err("rows for networks belong in a YAML file".to_owned());
    }
    Ok(())
}

/// The row with its line, as a row of a YAML file would be kept.
fn exact_row(file: &Arc<str>, row: &CsvRow<'_>) -> ExceptionRow {
    ExceptionRow {
        source: RowSource { file: Arc::clone(file), line: row.line },
        domain: Glob::new(row.domain),
        key: row.key.into(),
        value: RowValue::Exact(row.value.into()),
        path: Glob::Any,
        limit_name: Glob::Any,
        effect: Effect { tier: Some(row.tier.into()), ..Effect::default() },
        until_us: None,
        reason: None,
        by: None,
    }
}
