//! Reads a CSV file (RFC 4180) row by row: a request value and its tier. A row is one line, so that an unclosed quote
//! cannot swallow the rows after it.

use std::io::{self, BufRead, Read as _};
use std::sync::Arc;

use csv_core::{ReadRecordResult, Reader};
use engine::{Effect, ExceptionRow, Glob, RowSource, RowTerms, RowValue, TierRow};

use super::row::{COLUMNS, looks_like_network, parse_value};
use super::{Loader, MAX_CSV_ROWS};
use crate::nearest::nearest_name;
use crate::read::{FileReport, Position};

/// Each once, in any order.
const CSV_COLUMNS: [&str; 4] = ["domain", "key", "value", "tier"];
/// More than any row with values that a request may have.
const MAX_ROW_BYTES: usize = 64 << 10;
/// Some programs write it at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Columns of a row are counted up to this number.
const MAX_COLUMNS: usize = 32;
/// A file with more errors is of another kind, and is abandoned. The report lists 100 problems of a file.
const MAX_ERRORS: u32 = 99;

/// The positions of the columns in a row.
struct Columns {
    domain: usize,
    key: usize,
    value: usize,
    tier: usize,
}

/// One row, with its first line.
struct CsvRow<'r> {
    line: u32,
    domain: &'r str,
    key: &'r str,
    value: &'r str,
    tier: &'r str,
}

impl Loader<'_> {
    pub(super) fn read_csv(&mut self, file: &Arc<str>, stream: impl BufRead, report: &mut FileReport) {
        let mut lines = CsvLines::new(stream);
        let mut columns = None;
        let mut errors = 0;
        loop {
            let read = match lines.next_row() {
                Ok(false) => {
                    if columns.is_none() {
                        let reason =
                            "the file is empty; one without rows has the row `domain,key,value,tier` alone";
                        report.error(&Position::document(1), reason.to_owned());
                    }
                    return;
                }
                Ok(true) => match &columns {
                    None => {
                        columns = Columns::from_header(&lines, report);
                        if columns.is_none() {
                            return;
                        }
                        Ok(())
                    }
                    Some(columns) => columns.row(&lines).and_then(|row| self.add_csv_row(file, &row, report)),
                },
                Err(RowFault::Io(error)) => {
                    report.error(&Position::default(), format!("cannot read the file: {error}"));
                    return;
                }
                Err(RowFault::Text(reason)) => Err(reason),
            };
            let Err(reason) = read else { continue };
            report.error(&Position::document(lines.line), reason);
            errors += 1;
            if errors == MAX_ERRORS {
                let reason = format!("stopped reading the file after {MAX_ERRORS} errors");
                report.error(&Position::document(lines.line), reason);
                return;
            }
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
        let &CsvRow { domain, key, value, tier, .. } = row;
        let tier = TierRow { file, domain, key, value, tier };
        self.mentions.add_tier_row(tier, || full_row(row.line, tier, RowValue::Exact("".into())))?;
        if self.scope.entries.is_none() {
            return self.builder.add_tier(tier).map_err(|error| error.to_string());
        }
        let row = full_row(row.line, tier, parse_value(value)?);
        if self.is_wanted(&row.key, &row.value) {
            self.builder.add_row(row);
        }
        Ok(())
    }
}

impl Columns {
    /// Parses the header; every problem goes to `report`.
    fn from_header(header: &CsvLines<impl BufRead>, report: &mut FileReport) -> Option<Self> {
        let at = Position::document(header.line);
        let names: Vec<&str> = header.fields().map(str::trim).collect();
        if let [only] = names.as_slice()
            && only.contains([';', '\t'])
        {
            report.error(&at, "columns are separated by commas");
            return None;
        }
        let mut is_valid = true;
        for (index, name) in names.iter().enumerate() {
            let reason = match CSV_COLUMNS.contains(name) {
                true if names[..index].contains(name) => format!("duplicate column '{name}'"),
                true => continue,
                false if COLUMNS.contains(name) => {
                    format!("the column '{name}' belongs in a YAML file; a CSV file has {EXPECTED}")
                }
                false => match nearest_name(name, &CSV_COLUMNS) {
                    Some(column) => format!("unknown column '{name}'; did you mean '{column}'?"),
                    None => format!("unknown column '{name}': the first row of a CSV file names {EXPECTED}"),
                },
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

    fn row<'r>(&self, lines: &'r CsvLines<impl BufRead>) -> Result<CsvRow<'r>, String> {
        if lines.count != CSV_COLUMNS.len() {
            return Err(format!(
                "expected 4 columns, found {}; a value with a comma must be in quotes",
                lines.count
            ));
        }
        let field = |index| lines.field(index);
        let (domain, key, value, tier) =
            (field(self.domain), field(self.key), field(self.value), field(self.tier));
        Ok(CsvRow { line: lines.line, domain, key, value, tier })
    }
}

const EXPECTED: &str = "domain, key, value and tier";

/// The rows of a file, with memory reused for each row.
struct CsvLines<R> {
    stream: R,
    /// Creating one takes longer than reading a row.
    parser: Reader,
    /// The line last read, from 1.
    line: u32,
    bytes: Vec<u8>,
    /// The fields of the row without quotes, one after the other.
    text: String,
    /// The end of each field in `text`.
    ends: [usize; MAX_COLUMNS],
    /// Number of fields, at most `MAX_COLUMNS`.
    count: usize,
}

/// Why there is no row.
enum RowFault {
    Io(io::Error),
    /// For the author of the file. The next row can still be read.
    Text(String),
}

impl<R: BufRead> CsvLines<R> {
    fn new(stream: R) -> Self {
        let (bytes, text) = (Vec::new(), String::new());
        Self { stream, parser: Reader::new(), line: 0, bytes, text, ends: [0; MAX_COLUMNS], count: 0 }
    }

    /// Reads the next row that is not empty; `false` at the end of the file.
    fn next_row(&mut self) -> Result<bool, RowFault> {
        loop {
            self.bytes.clear();
            let mut line = (&mut self.stream).take(MAX_ROW_BYTES as u64 + 1);
            if line.read_until(b'\n', &mut self.bytes).map_err(RowFault::Io)? == 0 {
                return Ok(false);
            }
            // A file of 128 MB has fewer lines.
            self.line = self.line.saturating_add(1);
            if self.bytes.len() > MAX_ROW_BYTES {
                if self.bytes.last() != Some(&b'\n') {
                    self.stream.skip_until(b'\n').map_err(RowFault::Io)?;
                }
                return Err(RowFault::Text(format!("the row is longer than {MAX_ROW_BYTES} bytes")));
            }
            let line = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let is_first = self.line == 1;
            let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first).unwrap_or(line);
            // The parser would drop it.
            if line.starts_with(BYTE_ORDER_MARK) {
                return Err(RowFault::Text("the row begins with a byte order mark (U+FEFF)".to_owned()));
            }
            if !line.is_empty() {
                let text = std::mem::take(&mut self.text);
                self.parser.reset();
                (self.text, self.count) = split_row(&mut self.parser, line, text, &mut self.ends)
                    .map_err(|reason| RowFault::Text(reason.to_owned()))?;
                return Ok(true);
            }
        }
    }

    fn field(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.text.get(start..self.ends[index]).unwrap_or_default()
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        (0..self.count).map(|index| self.field(index))
    }
}

/// Writes the fields of a line to `text`, and their ends to `ends`. Returns the text and the number of fields.
fn split_row(
    parser: &mut Reader,
    line: &[u8],
    text: String,
    ends: &mut [usize; MAX_COLUMNS],
) -> Result<(String, usize), &'static str> {
    if std::str::from_utf8(line).is_err() {
        return Err("the row is not UTF-8");
    }
    if !line.iter().filter(|byte| **byte == b'"').count().is_multiple_of(2) {
        return Err("unclosed quote");
    }
    let mut fields = text.into_bytes();
    fields.resize(line.len(), 0);
    let (mut result, read, mut written, mut count) = parser.read_record(line, &mut fields, ends);
    if matches!(result, ReadRecordResult::InputEmpty) && read == line.len() {
        // An empty input ends the last field.
        let (end, _, more, last) = parser.read_record(&[], &mut fields[written..], &mut ends[count..]);
        result = end;
        written += more;
        count += last;
    }
    fields.truncate(written);
    match result {
        ReadRecordResult::Record | ReadRecordResult::OutputEndsFull => {
            Ok((String::from_utf8(fields).unwrap_or_default(), count))
        }
        _ => Err("the row is not a row of comma-separated values"),
    }
}

fn check_row(row: &CsvRow<'_>, report: &mut FileReport) -> Result<(), String> {
    let fields = CSV_COLUMNS.into_iter().zip([row.domain, row.key, row.value, row.tier]);
    for (name, text) in fields {
        if text.is_empty() {
            return Err(format!("column '{name}' is empty"));
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

/// The row with its line, like a row of a YAML file.
fn full_row(line: u32, row: TierRow<'_>, value: RowValue) -> ExceptionRow {
    let terms = RowTerms {
        domain: Glob::new(row.domain),
        key: row.key.into(),
        effect: Effect { tier: Some(row.tier.into()), ..Effect::default() },
        ..RowTerms::default()
    };
    let source = RowSource::File { file: Arc::clone(row.file), line };
    ExceptionRow { source, value, from_us: None, until_us: None, terms: terms.into() }
}
