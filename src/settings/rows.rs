//! Settings that are tables: a list of rows, each with the texts of its columns.

use std::collections::BTreeMap;

use rules::yaml::{Content, Node};

use super::error::{Fault, Origin, SettingProblem};
use super::parsers::Parser;
use super::reader::{Reader, quoted};

/// What a table is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) key: &'static str,
    pub(super) columns: &'static [&'static str],
    pub(super) max_rows: usize,
}

/// One row of a table, and where its problems go.
pub(super) struct Row<'r> {
    table: Table,
    index: usize,
    line: u32,
    /// Of the table.
    origin: &'r Origin,
    reader: &'r mut Reader,
    /// The texts by their column, each with its line.
    cells: BTreeMap<String, (String, u32)>,
}

impl Table {
    /// The rows, as `read_row` makes them. Rows that are not valid are recorded as problems.
    pub(super) fn read_rows<T>(
        self,
        reader: &mut Reader,
        read_row: impl Fn(&mut Row<'_>) -> Option<T>,
    ) -> Vec<T> {
        let expected = format!("a list of rows, each with some of: {}", self.columns.join(", "));
        let Some((rows, origin)) = reader.take_list(self.key, expected) else {
            return Vec::new();
        };
        if rows.len() > self.max_rows {
            let expected = format!("at most {} rows", self.max_rows);
            let fault = Fault::Malformed { expected, found: Some(rows.len().to_string()) };
            reader.refuse(SettingProblem { key: self.key.to_owned(), origin, fault });
            return Vec::new();
        }
        let mut valid = Vec::new();
        for (index, node) in rows.iter().enumerate() {
            let (line, cells) = (node.line, BTreeMap::new());
            let mut row = Row { table: self, index, line, origin: &origin, reader, cells };
            if row.read_cells(node) {
                valid.extend(read_row(&mut row));
            }
        }
        valid
    }
}

impl Row<'_> {
    /// Reads the cells that are texts in known columns. False if the row is none.
    fn read_cells(&mut self, row: &Node) -> bool {
        let Content::Map(pairs) = &row.content else {
            self.refuse(Fault::Malformed { expected: "a row with columns".to_owned(), found: None });
            return false;
        };
        for (column, cell) in pairs.iter() {
            let line = column.line;
            let Content::Scalar(name) = &column.content else {
                let expected = "the name of a column".to_owned();
                self.refuse_at("", line, Fault::Malformed { expected, found: None });
                continue;
            };
            let at = format!(".{}", name.text);
            if !self.table.columns.contains(&&*name.text) {
                let known = self.table.columns.iter().map(|&name| name.to_owned()).collect();
                self.refuse_at(&at, line, Fault::Unknown { known });
                continue;
            }
            let text = match &cell.content {
                Content::Scalar(text) if !text.is_null() => text.text.to_string(),
                _ => {
                    self.refuse_at(
                        &at,
                        line,
                        Fault::Malformed { expected: "a text".to_owned(), found: None },
                    );
                    continue;
                }
            };
            if self.cells.insert(name.text.to_string(), (text, line)).is_some() {
                self.refuse_at(&at, line, Fault::Unsupported("the column is given twice"));
            }
        }
        true
    }

    /// The text of a column, if the row has it.
    pub(super) fn text(&self, column: &str) -> Option<&str> {
        self.cells.get(column).map(|(text, _)| text.as_str())
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

    /// Adds a problem of the row.
    pub(super) fn refuse(&mut self, fault: Fault) {
        self.refuse_at("", self.line, fault);
    }

    /// Adds a problem of one column of the row.
    pub(super) fn refuse_cell(&mut self, column: &str, fault: Fault) {
        let line = self.cells.get(column).map_or(self.line, |(_, line)| *line);
        self.refuse_at(&format!(".{column}"), line, fault);
    }

    fn refuse_at(&mut self, at: &str, line: u32, fault: Fault) {
        let origin = match self.origin {
            Origin::File { path, .. } => Origin::File { path: path.clone(), line },
            other => other.clone(),
        };
        let key = format!("{}[{}]{at}", self.table.key, self.index);
        self.reader.refuse(SettingProblem { key, origin, fault });
    }
}
