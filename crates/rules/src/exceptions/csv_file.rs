//! Reads a CSV file (RFC 4180) row by row: a request value with its tier or limit. A row is one line, so that an
//! unclosed quote cannot swallow the rows after it.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read as _};
use std::sync::Arc;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use engine::{Effect, ExceptionRow, Glob, RowSource, RowTerms, RowValue, TierRow};

use super::csv_columns::{COLUMN_NAMES, HeaderColumns, REQUIRED};
use super::row::{MAX_UNITS, looks_like_network, parse_time, parse_value, wrong_units};
use super::{Loader, MAX_CSV_ROWS};
use crate::read::{FileReport, Position};

/// More than any row with values that a request may have.
const MAX_ROW_BYTES: usize = 64 << 10;
/// Some programs write it at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Columns of a row are counted up to this number.
const MAX_COLUMNS: usize = 256;
/// The first one in the header separates the columns.
const SEPARATORS: &[u8] = b",;\t";
/// A file with more errors is of another kind, and is abandoned. The report lists 100 problems of a file.
const MAX_ERRORS: u32 = 99;

/// One row, with its line, and `""` for each column that the file lacks.
struct CsvRow<'r> {
    line: u32,
    domain: &'r str,
    key: &'r str,
    value: &'r str,
    tier: &'r str,
    limit: &'r str,
    from: &'r str,
    until: &'r str,
}

impl Loader<'_> {
    pub(super) fn read_csv(&mut self, file: &Arc<str>, stream: impl BufRead, report: &mut FileReport) {
        let mut lines = CsvLines::new(stream);
        let mut columns = None;
        let mut full = FullRows::default();
        let mut errors = 0;
        loop {
            let read = match lines.next_row() {
                Ok(false) => {
                    if columns.is_none() {
                        let reason = "the file is empty; one without rows has the row with the names of its columns alone";
                        report.error(&Position::document(1), reason.to_owned());
                    }
                    return;
                }
                Ok(true) => match &columns {
                    None => {
                        let names: Vec<_> = lines.fields().map(str::trim).collect();
                        let at = Position::document(lines.line);
                        columns = HeaderColumns::find(&names, self.scope.columns, &at, report);
                        if columns.is_none() {
                            return;
                        }
                        Ok(())
                    }
                    Some(columns) => {
                        lines.row(columns).and_then(|row| self.add_csv_row(file, &row, &mut full, report))
                    }
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
        full: &mut FullRows,
        report: &mut FileReport,
    ) -> Result<(), String> {
        check_row(row, report)?;
        self.csv_rows += 1;
        if self.csv_rows > MAX_CSV_ROWS {
            return Err(format!("all CSV files together have more than {MAX_CSV_ROWS} rows"));
        }
        let &CsvRow { line, domain, key, value, tier, .. } = row;
        if !row.has_tier_alone() {
            self.check_full_rows()?;
            let row = full_row(file, row, parse_value(value)?)?;
            full.values.insert((row.key.clone(), row.value.clone()));
            self.add_full_row(row, line, &mut full.lines, report);
            return Ok(());
        }
        let tier = TierRow { file, domain, key, value, tier };
        // The table of tiers ignores the order of these rows, and the later one wins.
        if !full.values.is_empty() && full.values.contains(&(key.into(), parse_value(value)?)) {
            self.check_full_rows()?;
            self.add_full_row(tier_row(line, tier, parse_value(value)?), line, &mut full.lines, report);
            return Ok(());
        }
        self.mentions.add_tier_row(tier, || tier_row(row.line, tier, RowValue::Exact("".into())))?;
        if self.scope.entries.is_none() {
            return self.builder.add_tier(tier).map_err(|error| error.to_string());
        }
        let row = tier_row(line, tier, parse_value(value)?);
        if self.is_wanted(&row.key, &row.value) {
            self.builder.add_row(row);
        }
        Ok(())
    }
}

/// The rows of a file with more than a tier.
#[derive(Default)]
struct FullRows {
    /// The line of each row, by identity and start.
    lines: HashMap<(u64, Option<u64>), u32>,
    /// Their keys and values.
    values: HashSet<(Arc<str>, RowValue)>,
}

impl CsvRow<'_> {
    fn has_tier_alone(&self) -> bool {
        [self.limit, self.from, self.until].iter().all(|text| text.is_empty())
    }
}

/// The rows of a CSV file, with memory reused for each row.
#[derive(Debug)]
pub struct CsvLines<R> {
    stream: R,
    /// Creating one takes longer than reading a row.
    parser: Reader,
    /// `None` before the header.
    separator: Option<u8>,
    /// The line last read, from 1.
    pub line: u32,
    bytes: Vec<u8>,
    /// The fields of the row without quotes, one after the other.
    text: String,
    /// The end of each field in `text`.
    ends: [usize; MAX_COLUMNS],
    /// Number of fields, at most `MAX_COLUMNS`.
    count: usize,
}

/// Why there is no row.
#[derive(Debug)]
pub enum RowFault {
    Io(io::Error),
    /// For the author of the file. The next row can still be read.
    Text(String),
}

impl<R: BufRead> CsvLines<R> {
    pub fn new(stream: R) -> Self {
        let (bytes, text) = (Vec::new(), String::new());
        Self {
            stream,
            parser: Reader::new(),
            separator: None,
            line: 0,
            bytes,
            text,
            ends: [0; MAX_COLUMNS],
            count: 0,
        }
    }

    /// Reads the next row that is not empty; `false` at the end of the file.
    ///
    /// # Errors
    /// [`RowFault`]. After [`RowFault::Text`] the next row can be read.
    pub fn next_row(&mut self) -> Result<bool, RowFault> {
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
                if self.separator.is_none() {
                    let separator = separator_of(line);
                    self.separator = Some(separator);
                    self.parser = ReaderBuilder::new().delimiter(separator).build();
                }
                let text = std::mem::take(&mut self.text);
                self.parser.reset();
                (self.text, self.count) = split_row(&mut self.parser, line, text, &mut self.ends)
                    .map_err(|reason| RowFault::Text(reason.to_owned()))?;
                return Ok(true);
            }
        }
    }

    /// Returns the row last read.
    fn row<'r>(&'r self, columns: &'r HeaderColumns<'_>) -> Result<CsvRow<'r>, String> {
        if self.count != columns.count {
            let separator = match self.separator {
                Some(b';') => "semicolon",
                Some(b'\t') => "tab",
                _ => "comma",
            };
            return Err(format!(
                "expected {} columns, found {}; a value with a {separator} must be in quotes",
                columns.count, self.count
            ));
        }
        let [domain, key, value, tier, limit, from, until] =
            columns.places.each_ref().map(|place| place.text(|index| self.field(index)));
        Ok(CsvRow { line: self.line, domain, key, value, tier, limit, from, until })
    }

    fn field(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        self.text.get(start..self.ends[index]).unwrap_or_default()
    }

    /// The fields of the row last read, without quotes.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        (0..self.count).map(|index| self.field(index))
    }
}

/// Returns the first separator outside quotes; a comma if there is none.
fn separator_of(header: &[u8]) -> u8 {
    let mut is_quoted = false;
    let first = header.iter().find(|byte| {
        is_quoted ^= **byte == b'"';
        !is_quoted && SEPARATORS.contains(byte)
    });
    first.copied().unwrap_or(b',')
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
    let fields = [row.domain, row.key, row.value, row.tier, row.limit, row.from, row.until];
    for (index, (name, text)) in COLUMN_NAMES.into_iter().zip(fields).enumerate() {
        if text.is_empty() && index < REQUIRED {
            return Err(format!("column '{name}' is empty"));
        }
        if text.starts_with(' ') || text.ends_with(' ') {
            let reason = format!("'{name}' begins or ends with a space, which is a part of it");
            report.warn(&Position::document(row.line), reason);
        }
    }
    if row.tier.is_empty() && row.limit.is_empty() {
        return Err("columns 'tier' and 'limit' are empty".to_owned());
    }
    if row.domain != "*" && row.domain.contains('*') {
        return Err("the domain of a CSV row is a name, or '*' for all domains".to_owned());
    }
    if looks_like_network(row.value) {
        return Err("rows for networks belong in a YAML file".to_owned());
    }
    Ok(())
}

/// A row with a limit or times.
fn full_row(file: &Arc<str>, row: &CsvRow<'_>, value: RowValue) -> Result<ExceptionRow, String> {
    let time = |name, text: &str| (!text.is_empty()).then(|| parse_time(name, text)).transpose();
    let limit = match row.limit {
        "" => None,
        text => {
            let units = text.parse().ok().filter(|units| *units <= MAX_UNITS);
            Some(units.ok_or_else(|| wrong_units("limit", 0))?)
        }
    };
    let (from_us, until_us) = (time("from", row.from)?, time("until", row.until)?);
    let tier = (!row.tier.is_empty()).then(|| row.tier.into());
    let effect = Effect { tier, limit, ..Effect::default() };
    let terms =
        RowTerms { domain: Glob::new(row.domain), key: row.key.into(), effect, ..RowTerms::default() };
    let source = RowSource::File { file: Arc::clone(file), line: row.line };
    Ok(ExceptionRow { source, value, from_us, until_us, terms: terms.into() })
}

/// The row with its line, like a row of a YAML file.
fn tier_row(line: u32, row: TierRow<'_>, value: RowValue) -> ExceptionRow {
    let terms = RowTerms {
        domain: Glob::new(row.domain),
        key: row.key.into(),
        effect: Effect { tier: Some(row.tier.into()), ..Effect::default() },
        ..RowTerms::default()
    };
    let source = RowSource::File { file: Arc::clone(row.file), line };
    ExceptionRow { source, value, from_us: None, until_us: None, terms: terms.into() }
}
