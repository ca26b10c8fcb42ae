//! Settings that are tables: a list of rows, each with the texts of its columns.

use config::{Map, Value, ValueKind};

use super::error::{Fault, SettingProblem, quoted};
use super::parsers::Parser;
use super::reader::Reader;

/// What a table is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) key: &'static str,
    pub(super) columns: &'static [&'static str],
    pub(super) max_rows: usize,
}

/// One row of a table, and where its problems go.
pub(super) struct Row<'r> {
    /// The key of the row, `upgrades[0]`.
    key: String,
    origin: &'r str,
    cells: &'r Map<String, Value>,
    reader: &'r mut Reader,
}

impl Table {
    /// The rows, as `read_row` makes them. Rows that are not valid are recorded as problems.
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
    /// Refuses cells in unknown columns, and cells that are no texts.
    fn refuse_misplaced(&mut self, columns: &[&str]) {
        for (column, cell) in self.cells {
            if !columns.contains(&column.as_str()) {
                let known = columns.iter().map(|&name| name.to_owned()).collect();
                self.refuse_cell(column, Fault::Unknown { known });
            } else if !matches!(cell.kind, ValueKind::String(_)) {
                self.refuse_cell(column, Fault::Malformed { expected: "a text".to_owned(), found: None });
            }
        }
    }

    /// The text of a column, if the row has it.
    pub(super) fn text(&self, column: &str) -> Option<&str> {
        match &self.cells.get(column)?.kind {
            ValueKind::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a column; `None` if the row does not have it, or after a problem.
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
