//! Reads a YAML file of rows with all columns: a list of maps, one per row.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::sync::Arc;

use base::read_stream;
use engine::{Effect, ExceptionKind, ExceptionRow, Glob, Multiplier, RowSource, RowTerms};

use super::changes::row_identity;
use super::row::{COLUMNS, MAX_UNITS, parse_time, parse_value, wrong_units};
use super::{Loader, MAX_FULL_ROWS};
use crate::nearest::nearest_name;
use crate::problem::Problems;
use crate::read::{Entry, EntryReader, FileReport, Position, ScalarValue, type_and_text};
use crate::source::MAX_EXCEPTION_BYTES;
use crate::text::decode;
use crate::yaml::{Content, Node, Scalar, YamlError, parse_list};

/// An error, because a file truncated by a full disk must not lift blocks.
const NO_LIST: &str = "the file is empty; one without rows is `[]`";
const NOT_A_LIST: &str =
    "expected a list of rows, such as `- { domain: llm, key: tenant, value: acme, multiplier: 2 }`";

/// Reads the rows in a YAML file, to set them while the service runs.
///
/// # Errors
/// All problems of the file.
pub fn read_rows(name: &str, stream: impl Read) -> Result<Vec<ExceptionRow>, Problems> {
    let (file, mut rows) = (name.into(), Vec::new());
    let mut report = FileReport::new(&file);
    read_list(stream, &mut report, |node, report| {
        let source = RowSource::File { file: Arc::clone(&file), line: node.line };
        rows.extend(read_row(source, &node, report));
        Ok(())
    });
    let problems = Problems::sorted(report.problems, &[]);
    if problems.has_errors() { Err(problems) } else { Ok(rows) }
}

/// Passes each element of the file's list to `on_row`.
fn read_list(
    stream: impl Read,
    report: &mut FileReport,
    mut on_row: impl FnMut(Node, &mut FileReport) -> Result<(), YamlError>,
) {
    let bytes = match read_stream(stream, MAX_EXCEPTION_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => return report.error(&Position::default(), format!("cannot read the file: {error}")),
    };
    match decode(&bytes).and_then(|text| parse_list(&text, |node| on_row(node, report))) {
        Err(YamlError { line, reason }) => report.error(&Position::document(line), reason),
        Ok(document) => {
            match document.root {
                None => report.error(&Position::document(1), NO_LIST),
                Some(root) if !matches!(root.content, Content::List(_)) => {
                    report.error(&Position::document(root.line), NOT_A_LIST);
                }
                Some(_) => {}
            }
            if let Some(line) = document.second_line {
                let reason = "only the first YAML document of a file is read; this one is ignored";
                report.warn(&Position::document(line), reason);
            }
        }
    }
}

impl Loader<'_> {
    pub(super) fn read_yaml(&mut self, file: &Arc<str>, stream: impl BufRead, report: &mut FileReport) {
        let mut lines = HashMap::new();
        read_list(stream, report, |node, report| {
            self.check_full_rows().map_err(|reason| YamlError::new(node.line, reason))?;
            let source = RowSource::File { file: Arc::clone(file), line: node.line };
            if let Some(row) = read_row(source, &node, report) {
                self.add_full_row(row, node.line, &mut lines, report);
            }
            Ok(())
        });
    }

    /// Counts a row with more than a tier.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn check_full_rows(&mut self) -> Result<(), String> {
        self.full_rows += 1;
        if self.full_rows > MAX_FULL_ROWS {
            return Err(format!(
                "all files together have more than {MAX_FULL_ROWS} rows; rows of CSV files with a tier alone do not count"
            ));
        }
        Ok(())
    }

    /// `lines`: the line of each row of the file, by row identity and start.
    pub(super) fn add_full_row(
        &mut self,
        row: ExceptionRow,
        line: u32,
        lines: &mut HashMap<(u64, Option<u64>), u32>,
        report: &mut FileReport,
    ) {
        let at = Position::document(line);
        if row.effect.add.is_some() && row.from_us.is_none() {
            report.error(&at, "'add' needs 'from': the units are for the window that contains this time");
        }
        let identity = row_identity(&row);
        if let Some(earlier) = lines.insert((identity, row.from_us), line) {
            let reason = format!("duplicates line {earlier}; this row wins");
            report.warn(&at, reason);
        }
        if row.has_ended(self.scope.now_us) {
            report.warn(&at, "expired: 'until' is in the past");
        }
        self.mentions.add_row(&row);
        self.changes.add_row(&row, identity);
        if self.is_wanted(&row.key, &row.value) {
            self.builder.add_row(row);
        }
    }
}

/// `None` after an error.
pub(super) fn read_row(source: RowSource, node: &Node, report: &mut FileReport) -> Option<ExceptionRow> {
    let at = Position::document(node.line);
    if !node.is_map() {
        report.error(
            &at,
            "a row must be a map, such as `{ domain: llm, key: tenant, value: acme, block: true }`",
        );
        return None;
    }
    let mut fields = RowFields::from_map(node, &at, report);
    let is_live = matches!(source, RowSource::Live { .. });
    let or_duration = if is_live { ", or a duration such as 2h (--until, --for)" } else { "" };
    let terms = RowTerms {
        domain: Glob::new(fields.required("domain")),
        key: fields.required("key").into(),
        path: Glob::new(fields.text("path").unwrap_or("*")),
        limit_name: Glob::new(fields.text("limit_name").unwrap_or("*")),
        effect: fields.effect(),
        reason: fields.text("reason").map(Into::into),
        by: fields.text("by").map(Into::into),
    };
    let row = ExceptionRow {
        source,
        value: {
            let value = fields.required("value");
            fields.parsed("value", value, parse_value)
        }
        .unwrap_or_else(|| engine::RowValue::Exact("".into())),
        from_us: fields.time("from", ""),
        until_us: fields.time("until", or_duration),
        terms: terms.into(),
    };
    fields.check_effect(&row);
    fields.is_valid.then_some(row)
}

/// The columns of one row that have a value.
struct RowFields<'n, 'r> {
    at: Position,
    entries: Vec<(&'n str, &'n Node)>,
    report: &'r mut FileReport,
    is_valid: bool,
}

impl<'n, 'r> RowFields<'n, 'r> {
    fn from_map(map: &'n Node, at: &Position, report: &'r mut FileReport) -> Self {
        let read = EntryReader { is_merged: |_| false, report }.entries(&map.into(), at);
        let mut fields = Self { at: at.clone(), entries: Vec::new(), report, is_valid: true };
        for Entry { line, name, value, .. } in read {
            let at = at.on_line(line);
            match name {
                Some(name) if COLUMNS.contains(&name) => fields.entries.push((name, value.node())),
                Some(name) => {
                    let reason = match nearest_name(name, &COLUMNS) {
                        Some(column) => format!("unknown column '{name}'; did you mean '{column}'?"),
                        None => format!("unknown column '{name}': the columns are {}", COLUMNS.join(", ")),
                    };
                    fields.error(&at, reason);
                }
                None => fields.error(&at, "the name of a column must be a string".to_owned()),
            }
        }
        fields
    }

    fn error(&mut self, at: &Position, reason: String) {
        self.report.error(at, reason);
        self.is_valid = false;
    }

    /// The scalar of a column, with its line; `None` also after an error.
    fn scalar(&mut self, name: &str) -> Option<(&'n Scalar, u32)> {
        let (_, node) = self.entries.iter().find(|(known, _)| *known == name)?;
        let at = self.at.on_line(node.line);
        match &node.content {
            Content::Scalar(scalar) if scalar.is_null() || scalar.text.is_empty() => {
                self.error(&at, format!("'{name}' has no value"));
                None
            }
            Content::Scalar(scalar) => Some((scalar, node.line)),
            _ => {
                self.error(&at, format!("'{name}' must be a string, found {}", type_and_text(node)));
                None
            }
        }
    }

    /// The string of a column, as written.
    fn text(&mut self, name: &str) -> Option<&'n str> {
        self.scalar(name).map(|(scalar, _)| &*scalar.text)
    }

    /// The string of a mandatory column.
    fn required(&mut self, name: &str) -> &'n str {
        if !self.entries.iter().any(|(known, _)| *known == name) {
            let at = self.at.clone();
            self.error(&at, format!("'{name}' is missing"));
        }
        self.text(name).unwrap_or_default()
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(text) {
            Ok(value) => Some(value),
            Err(reason) => {
                let line =
                    self.entries.iter().find(|(known, _)| *known == name).map_or(0, |(_, node)| node.line);
                let at = self.at.on_line(line);
                self.error(&at, reason);
                None
            }
        }
    }

    fn flag(&mut self, name: &str) -> Option<bool> {
        let (scalar, line) = self.scalar(name)?;
        let ScalarValue::Bool(flag) = ScalarValue::resolve(scalar) else {
            let at = self.at.on_line(line);
            self.error(&at, format!("'{name}' must be true or false"));
            return None;
        };
        Some(flag)
    }

    /// `or`: what else the column may be.
    fn time(&mut self, name: &str, or: &str) -> Option<u64> {
        let text = self.text(name)?;
        self.parsed(name, text, |text| parse_time(name, text).map_err(|reason| reason + or))
    }

    /// A whole number from `least` to [`MAX_UNITS`].
    fn units(&mut self, name: &str, least: i128) -> Option<u64> {
        let (scalar, line) = self.scalar(name)?;
        match ScalarValue::resolve(scalar) {
            ScalarValue::Int(number) if (least..=MAX_UNITS.into()).contains(&number) => {
                u64::try_from(number).ok()
            }
            _ => {
                let at = self.at.on_line(line);
                self.error(&at, wrong_units(name, least));
                None
            }
        }
    }

    fn multiplier(&mut self) -> Option<Multiplier> {
        let text = self.text("multiplier")?;
        let parse = |text: &str| text.parse::<Multiplier>().map_err(|error| format!("'multiplier': {error}"));
        self.parsed("multiplier", text, parse)
    }

    fn effect(&mut self) -> Effect {
        Effect {
            tier: self.text("tier").map(Into::into),
            limit: self.units("limit", 0),
            multiplier: self.multiplier(),
            add: self.units("add", 1),
            block: self.flag("block").unwrap_or_default(),
            exempt: self.flag("exempt").unwrap_or_default(),
            shadow_mode: self.flag("shadow_mode"),
        }
    }

    /// Reports columns that have no effect in combination.
    fn check_effect(&mut self, row: &ExceptionRow) {
        let at = self.at.clone();
        let effect = &row.effect;
        let kinds: Vec<_> = effect.kinds().collect();
        if kinds.is_empty() && self.is_valid {
            let reason = "the row changes nothing: it needs tier, limit, multiplier, add, block, exempt or shadow_mode";
            self.error(&at, reason.to_owned());
        }
        let is_alone = |kind: &&ExceptionKind| {
            matches!(kind, ExceptionKind::Block | ExceptionKind::Exempt | ExceptionKind::Add)
        };
        if let Some(alone) = kinds.iter().find(is_alone)
            && let Some(other) = kinds.iter().find(|other| *other != alone)
        {
            self.error(&at, format!("set '{}' or '{}', not both", alone.into_str(), other.into_str()));
        }
        if effect.tier.is_some() && effect.limit.is_some() {
            self.report.warn(&at, "'tier' has no effect next to 'limit'");
        }
        if let (Some(from_us), Some(until_us)) = (row.from_us, row.until_us)
            && until_us <= from_us
        {
            self.report.warn(&at, "'until' is not after 'from': the row is never in force");
        }
    }
}
