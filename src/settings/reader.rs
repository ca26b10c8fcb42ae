//! Takes settings from the merged layers, one after another, with tables as lists of rows, and collects the catalogue,
//! the current values, and the problems.

use std::path::PathBuf;

use config::{Config, Map, Value, ValueKind};

use super::error::{Fault, SettingProblem, SettingProblems, SettingsError, quoted};
use super::file::list_of;
use super::layers::{self, Setting};
use super::parsers::{Parser, optional_path};

/// Origin of a value that is not written.
const DEFAULT: &str = "the default";

/// The current settings, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsReport {
    /// Values without effect, or perhaps unintended, one line each.
    pub warnings: Vec<String>,
    /// Every setting, in documentation order.
    pub settings: Vec<SettingInForce>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingInForce {
    pub key: String,
    /// As written; a secret is masked.
    pub value: String,
    /// `true` if `value` masks a secret.
    pub is_masked: bool,
    /// File and line, or the variable; `None` for the compiled-in default.
    pub origin: Option<String>,
    /// `true` if the value equals the compiled-in default, wherever it was written.
    pub is_default: bool,
}

impl SettingInForce {
    /// The origin for people.
    pub fn source(&self) -> &str {
        self.origin.as_deref().unwrap_or(DEFAULT)
    }
}

/// The merged layers, and what was found so far. Without layers, every setting has its default.
#[derive(Debug, Default)]
pub(super) struct Reader {
    merged: Config,
    settings: Vec<Setting>,
    problems: Vec<SettingProblem>,
    warnings: Vec<String>,
    in_force: Vec<SettingInForce>,
}

impl Reader {
    /// `problems`: with keys that are not settings.
    pub(super) fn new(merged: Config, problems: Vec<SettingProblem>) -> Self {
        Self { merged, problems, ..Self::default() }
    }

    /// Returns the setting's value. If it is malformed, records a problem and returns the default.
    pub(super) fn take<T>(&mut self, key: &str, default: &'static str, parser: Parser<T>) -> T {
        self.add_setting(key, default, &parser.expected, parser.is_secret);
        let fallback = || parser.parse(default).expect("every default is valid: a test reads them all");
        let Some(value) = self.value(key) else { return fallback() };
        let text = match &value.kind {
            ValueKind::String(text) => Some(text.as_str()),
            ValueKind::Nil if default.is_empty() => Some(default),
            _ => None,
        };
        if let Some((text, parsed)) = text.and_then(|text| Some((text, parser.parse(text)?))) {
            let shown = parser.shown(text);
            let (is_masked, is_default) = (value.origin().is_some() && shown != text, text == default);
            self.put_in_force(key, shown, is_masked, is_default);
            return parsed;
        }
        let found = match &value.kind {
            ValueKind::String(text) => (!parser.is_secret).then(|| quoted(text)),
            ValueKind::Array(_) => Some("a list".to_owned()),
            _ => Some("nothing".to_owned()),
        };
        let problem = self.problem(key, Fault::Malformed { expected: parser.expected.clone(), found });
        self.problems.push(problem);
        fallback()
    }

    /// Returns a list's elements. A string, such as from a variable, is parsed as YAML.
    pub(super) fn take_list(&mut self, key: &str, expected: &str) -> Vec<Value> {
        const NONE: &str = "[]";
        self.add_setting(key, NONE, expected, false);
        let Some(value) = self.value(key) else { return Vec::new() };
        let (elements, shown) = match &value.kind {
            ValueKind::Array(elements) => (Ok(elements.clone()), format!("a list of {}", elements.len())),
            ValueKind::String(text) => {
                let elements = list_of(text, value.origin().unwrap_or(DEFAULT));
                (elements.ok_or_else(|| quoted(text)), text.clone())
            }
            _ => (Err("nothing".to_owned()), String::new()),
        };
        match elements {
            Ok(elements) => {
                self.put_in_force(key, shown, false, elements.is_empty());
                elements
            }
            Err(found) => {
                self.refuse(key, Fault::Malformed { expected: expected.to_owned(), found: Some(found) });
                Vec::new()
            }
        }
    }

    /// Takes the section's files of a client certificate and its key, for servers that request one.
    pub(super) fn take_identity(&mut self, section: &str) -> Option<(PathBuf, PathBuf)> {
        let keys = ["cert_file", "key_file"].map(|name| format!("{section}.{name}"));
        let [certificate, key] = keys.each_ref().map(|key| self.take(key, "", optional_path()));
        if certificate.is_some() != key.is_some() {
            let reason = "cert_file and key_file belong together: set both or none";
            self.refuse(&keys[0], Fault::Unsupported(reason));
        }
        certificate.zip(key)
    }

    /// `true` if the file or a variable has the setting, even with the compiled-in default.
    pub(super) fn is_written(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.origin().is_some())
    }

    /// Builds a problem with a setting's value.
    pub(super) fn problem(&self, key: &str, fault: Fault) -> SettingProblem {
        let origin = self.value(key).and_then(Value::origin).unwrap_or(DEFAULT).to_owned();
        SettingProblem { key: key.to_owned(), origin, fault }
    }

    /// Records a problem of values that are valid alone, but not together.
    pub(super) fn refuse(&mut self, key: &str, fault: Fault) {
        let problem = self.problem(key, fault);
        self.problems.push(problem);
    }

    /// Returns a setting's value as written, which can be a secret.
    pub(super) fn written_text(&self, key: &str) -> &str {
        match self.value(key).map(|value| &value.kind) {
            Some(ValueKind::String(text)) => text,
            _ => "",
        }
    }

    /// Records what is valid, but may be unintended.
    pub(super) fn warn(&mut self, key: &str, reason: &str) {
        self.warnings.push(format!("{key}: {reason}"));
    }

    /// Records a problem with a part of a setting.
    pub(super) fn add_problem(&mut self, problem: SettingProblem) {
        self.problems.push(problem);
    }

    pub(super) fn into_settings(self) -> Vec<Setting> {
        self.settings
    }

    /// Returns the current values, or every problem, sorted by key.
    pub(super) fn finish(mut self, mut warnings: Vec<String>) -> Result<SettingsReport, SettingsError> {
        if self.problems.is_empty() {
            warnings.extend(self.warnings);
            return Ok(SettingsReport { warnings, settings: self.in_force });
        }
        self.problems.sort_by(|a, b| a.key.cmp(&b.key));
        self.problems.dedup();
        Err(SettingsError::Invalid(SettingProblems(self.problems)))
    }

    fn add_setting(&mut self, key: &str, default: &'static str, expected: &str, is_secret: bool) {
        let (key, expected, variable) = (key.to_owned(), expected.to_owned(), layers::variable(key));
        self.settings.push(Setting { key, variable, default, expected, is_secret });
    }

    fn put_in_force(&mut self, key: &str, value: String, is_masked: bool, is_default: bool) {
        let origin = self.value(key).and_then(Value::origin).map(str::to_owned);
        self.in_force.push(SettingInForce { key: key.to_owned(), value, is_masked, origin, is_default });
    }

    /// Returns the merged value of a key; `None` without layers.
    fn value(&self, key: &str) -> Option<&Value> {
        key.split('.').try_fold(&self.merged.cache, |section, name| match &section.kind {
            ValueKind::Table(values) => values.get(name),
            _ => None,
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'c> {
    pub(super) key: &'static str,
    pub(super) columns: &'c [&'c str],
    pub(super) max_rows: usize,
}

/// One row of a table, and where its problems go.
pub(super) struct Row<'r> {
    /// The row's key, `upgrades[0]`.
    key: String,
    origin: &'r str,
    cells: &'r Map<String, Value>,
    reader: &'r mut Reader,
}

impl Table<'_> {
    /// Returns the rows that `read_row` builds. Invalid rows are recorded as problems.
    pub(super) fn read_rows<T>(
        self,
        reader: &mut Reader,
        read_row: impl Fn(&mut Row<'_>) -> Option<T>,
    ) -> Vec<T> {
        let expected = format!("a list of rows, each with some of: {}", self.columns.join(", "));
        let rows = reader.take_list(self.key, &expected);
        if rows.len() > self.max_rows {
            let expected = format!("at most {} rows", self.max_rows);
            let found = Some(rows.len().to_string());
            reader.refuse(self.key, Fault::Malformed { expected, found });
            return Vec::new();
        }
        let mut valid = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let (key, origin) = (format!("{}[{index}]", self.key), origin(row));
            let ValueKind::Table(cells) = &row.kind else {
                let fault = Fault::Malformed { expected: "a row with columns".to_owned(), found: None };
                reader.add_problem(SettingProblem { key, origin: origin.to_owned(), fault });
                continue;
            };
            let mut row = Row { key, origin, cells, reader };
            row.refuse_misplaced(self.columns);
            valid.extend(read_row(&mut row));
        }
        valid
    }
}

impl Row<'_> {
    /// Refuses cells in unknown columns, and cells that are not strings.
    fn refuse_misplaced(&mut self, columns: &[&str]) {
        for (column, cell) in self.cells {
            if !columns.contains(&column.as_str()) {
                self.refuse_cell(column, Fault::unknown(column, columns));
            } else if !matches!(cell.kind, ValueKind::String(_)) {
                self.refuse_cell(column, Fault::Malformed { expected: "a text".to_owned(), found: None });
            }
        }
    }

    /// Returns a column's value, if the row has it.
    pub(super) fn text(&self, column: &str) -> Option<&str> {
        match &self.cells.get(column)?.kind {
            ValueKind::String(text) => Some(text),
            _ => None,
        }
    }

    /// Parses a column's value; `None` if the row does not have it, or after a problem.
    pub(super) fn cell<T>(&mut self, column: &str, parser: &Parser<T>) -> Option<T> {
        let value = parser.parse(self.text(column)?);
        if value.is_none() {
            let found = self.text(column).map(quoted);
            self.refuse_cell(column, Fault::Malformed { expected: parser.expected.clone(), found });
        }
        value
    }

    /// Records a problem of the row.
    pub(super) fn refuse(&mut self, fault: Fault) {
        let (key, origin) = (self.key.clone(), self.origin.to_owned());
        self.reader.add_problem(SettingProblem { key, origin, fault });
    }

    /// Records a problem of one column of the row.
    pub(super) fn refuse_cell(&mut self, column: &str, fault: Fault) {
        let origin = self.cells.get(column).map_or(self.origin, origin).to_owned();
        self.reader.add_problem(SettingProblem { key: format!("{}.{column}", self.key), origin, fault });
    }
}

fn origin(value: &Value) -> &str {
    value.origin().unwrap_or_default()
}
